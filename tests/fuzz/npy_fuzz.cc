// Any bytes are either refused or read as an array that can be written and read again.
#include "format/npy.h"

#include <cstring>

#include "fuzz/fuzz.h"
#include "regard/error.h"

using regard::fuzz::demand;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto array = regard::read_npy(regard::MemorySource({data, size}), "fuzz");
  if (!array) return 0;
  demand(array->bytes.size() <= size);
  std::string written = regard::npy_header(array->type, array->shape);
  demand(written.size() % 64 == 0);
  written.append(reinterpret_cast<const char*>(array->bytes.data()), array->bytes.size());
  const auto again = regard::read_npy(regard::MemorySource({reinterpret_cast<const uint8_t*>(written.data()), written.size()}), "again");
  demand(again && again->type == array->type && again->shape == array->shape && again->bytes == array->bytes);
  const auto refuses = [](auto&& convert) {
    try {
      convert();
      return false;
    } catch (const regard::Error&) {
      return true;
    }
  };
  const bool no_real = refuses([&] { demand(static_cast<int64_t>(array->to_f32().size()) == array->size()); });
  demand(no_real == refuses([&] { (void)array->to_f64(); }));
  const bool no_integer = refuses([&] { (void)array->to_i64(); });
  demand(no_real || no_integer);
  (void)refuses([&] { (void)array->to_bool(); });
  return 0;
}

std::vector<std::string> regard::fuzz::seeds() {
  std::vector<std::string> all;
  const auto head = [](const std::string& dictionary, size_t data, char version = 1) {
    std::string file = "\x93NUMPY";
    file += {version, '\0', static_cast<char>(dictionary.size() & 0xFF), static_cast<char>(dictionary.size() >> 8)};
    if (version == 2) file += {'\0', '\0'};
    file += dictionary;
    for (size_t i = 0; i < data; ++i) file += static_cast<char>(i % 2);
    return file;
  };
  for (const char* descr : {"<f4", "<f8", "<f2", "|b1", "|u1", "|i1", "<i2", "<i4", "<i8", "<u2", "<u4", "<u8", ">f4", "|O", "<c8"})
    all.push_back(head("{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': (2,), }\n", 2 * static_cast<size_t>(descr[1] == 'O' ? 8 : descr[2] - '0')));
  all.push_back(head("{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3, 4), }\n", 48));
  all.push_back(head("{'descr': '<i2', 'fortran_order': False, 'shape': (), }\n", 2, 2));
  all.push_back(head("{\"shape\":(0,7),\"fortran_order\":True,\"descr\":\"<f2\"}", 0));
  all.push_back(head("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }\n", 4));
  all.push_back(head("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 9), }\n", 4));
  all.push_back(head("{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999999999,), }\n", 4));
  all.push_back(head("{'descr': '<u8', 'fortran_order': False, 'shape': (1,), }\n", 0) + std::string(8, '\xFF'));
  all.push_back(head("{'descr': '|b1', 'fortran_order': False, 'shape': (1,), }\n", 0) + "\x02");
  all.push_back(std::string("PK\x03\x04\0\0\0\0", 8));
  all.push_back(head("{}", 0, 3));
  return all;
}
