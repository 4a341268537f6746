// What every way of using the library has to be able to build and run: public headers alone, a mask, a version.
#include <cstdio>
#include <cstring>

#include "regard/mask.h"
#include "regard/version.h"

int main() {
  const regard::Mask mask = regard::Mask::parse("causal & (window(127, 0) | sinks(4))");
  const bool sees = mask.allowed(0, 0, 200, 3), blind = mask.allowed(0, 0, 200, 50);
  std::printf("regard %s: row 200 sees key 3: %d, key 50: %d\n", regard::version(), sees, blind);
  return sees && !blind && std::strcmp(regard::version(), "0.1.0") == 0 ? 0 : 1;
}
