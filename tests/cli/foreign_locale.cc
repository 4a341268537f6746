// Preloaded into the program by locale_test.py: sets the environment's locale before main(), as a host program of the library
// may have done.
#include <clocale>
#include <locale>

namespace {
[[gnu::constructor]] void set_locale() {
  std::setlocale(LC_ALL, "");
  std::locale::global(std::locale(""));
}
}  // namespace
