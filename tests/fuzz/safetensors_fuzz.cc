// The first byte chooses: a safetensors file, or the index of a sharded one. Either is refused, or read as tensors that
// fill the buffer without holes, as file names that stay in their folder.
#include "format/safetensors.h"

#include "format/tensor_source.h"
#include "fuzz/fuzz.h"
#include "support/safetensors_builder.h"

using regard::fuzz::demand;

namespace {

void read_file(std::span<const uint8_t> bytes) {
  regard::SafetensorsLimits limits;
  limits.max_header_bytes = 1 << 16;
  const auto file = regard::read_safetensors(regard::MemorySource(bytes), "fuzz", limits);
  if (!file) return;
  uint64_t end = file->data_begin;
  for (const regard::TensorInfo& tensor : file->tensors) {
    demand(tensor.offset == end);
    demand(static_cast<uint64_t>(tensor.values()) * static_cast<uint64_t>(regard::info(tensor.type).bytes) == tensor.bytes);
    end += tensor.bytes;
  }
  demand(end == bytes.size());
  std::vector<std::unique_ptr<regard::ByteSource>> shards;
  shards.push_back(std::make_unique<regard::MemorySource>(bytes));
  demand(static_cast<bool>(regard::TensorSource::from_safetensors(std::move(shards), {"fuzz"})));
}

void read_index(std::string_view text) {
  const auto index = regard::read_safetensors_index(text, "fuzz");
  if (!index) return;
  for (const auto& [tensor, file] : index->tensors) demand(file < index->files.size() && !tensor.empty());
  for (const std::string& file : index->files) {
    demand(!file.empty() && file != "." && file != ".." && file.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span<const uint8_t> rest(data + 1, size - 1);
  if (data[0] % 2 == 0) {
    read_file(rest);
  } else {
    read_index({reinterpret_cast<const char*>(rest.data()), rest.size()});
  }
  return 0;
}

std::vector<std::string> regard::fuzz::seeds() {
  using testing_support::safetensors_bytes;
  std::vector<std::string> all;
  const auto file = [&](const std::vector<uint8_t>& bytes) { all.push_back("F" + as_text(bytes)); };
  const auto header = [&](std::string_view text, size_t buffer) { all.push_back("F" + as_text(safetensors_bytes(text, std::vector<uint8_t>(buffer)))); };
  file(testing_support::small_safetensors().build());
  header("{}", 0);
  for (const char* dtype : {"F64", "F16", "I32", "I16", "I8", "U8", "U16", "U32", "U64", "F8_E4M3", "C64", "X"})
    header("{\"t\":{\"dtype\":\"" + std::string(dtype) + "\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8);
  header(R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3);
  header(R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}})", 2);
  header(R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[0]}})", 2);
  header(R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"u":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3);
  header(R"({"t":{"dtype":"U8","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0);
  header(R"({"t":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1);
  header(R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":0}})", 1);
  header(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
  header(R"({"__metadata__":{"a":1}})", 0);
  header(std::string(70000, ' '), 0);
  for (const char* head : {"PK\x03\x04xxxxxxxx", "\x80\x02}q\x01(X\x0axxxx", "GGUFxxxxxxxx", "\x89HDF\r\n\x1a\nxxxx", "\x93NUMPY\x01xxxx", "\x1F\x8B\x08xxxxxxxx", "version https://", "{\"a\": 1}       "})
    all.push_back("F" + std::string(head));
  all.push_back("I" + std::string(R"({"metadata":{"total_size":3},"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors","c":"m-1.safetensors"}})"));
  all.push_back("I" + std::string(R"({"weight_map":{"a":"../x"}})"));
  all.push_back("I" + std::string(R"({"weight_map":{"\u0001":"x"}})"));
  all.push_back("I" + std::string(R"({"weight_map":{}})"));
  for (std::string& s : all) s[0] = s[0] == 'F' ? '\0' : '\1';
  return all;
}
