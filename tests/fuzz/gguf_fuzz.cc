// Any bytes are either refused or read as a GGUF head whose every tensor lies inside the file, in memory that the file's
// own size bounds.
#include "format/gguf.h"

#include "format/tensor_source.h"
#include "fuzz/fuzz.h"
#include "support/gguf_builder.h"

using regard::fuzz::demand;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  const auto file = regard::read_gguf(regard::MemorySource(bytes), "fuzz");
  if (!file) {
    demand(!file.failure().message.empty());
    return 0;
  }
  uint64_t held = 0;
  for (const std::string& key : file->metadata.keys()) {
    const regard::GgufValue& value = *file->metadata.find(key);
    held += value.raw.size() + value.string.size() + 8 * value.strings.size();
    for (size_t i = 0; i < value.strings.size(); ++i) held += value.strings[i].size();
    // Every getter either gives what it promises or refuses.
    if (const auto v = file->metadata.optional_integer(key, -5, 5)) demand(**v >= -5 && **v <= 5);
    if (const auto v = file->metadata.optional_number(key, 0, 1)) demand(**v >= 0 && **v <= 1);
    if (const auto v = file->metadata.optional_strings(key)) demand((*v)->size() == value.count);
    if (const auto v = file->metadata.optional_integers(key, -9, 9)) demand((*v)->size() == value.count);
    if (const auto v = file->metadata.optional_numbers(key)) demand((*v)->size() == value.count);
    if (const auto v = file->metadata.optional_per_layer(key, 3, 0, 100)) demand((*v)->size() == 3);
    demand(static_cast<bool>(file->metadata.integer(key, -5, 5)) == static_cast<bool>(file->metadata.optional_integer(key, -5, 5)));
    demand(static_cast<bool>(file->metadata.number(key, 0, 1)) == static_cast<bool>(file->metadata.optional_number(key, 0, 1)));
    demand(static_cast<bool>(file->metadata.string(key)) == (value.type == regard::GgufType::kString));
    (void)file->metadata.optional_bool(key);
    (void)file->metadata.optional_string(key);
  }
  demand(held <= size);
  demand(!file->metadata.integer("no such\nkey", 0, 1) && !*file->metadata.optional_bool("no such\nkey"));
  uint64_t end = file->data_begin;
  for (const regard::TensorInfo& tensor : file->tensors) {
    demand(tensor.offset >= end && tensor.offset % file->alignment == file->data_begin % file->alignment);
    demand(tensor.bytes <= size && tensor.offset <= size - tensor.bytes);
    demand(tensor.bytes * static_cast<uint64_t>(regard::info(tensor.type).values) == static_cast<uint64_t>(tensor.values()) * static_cast<uint64_t>(regard::info(tensor.type).bytes));
    end = tensor.offset + tensor.bytes;
  }

  std::vector<std::unique_ptr<regard::ByteSource>> parts;
  parts.push_back(std::make_unique<regard::MemorySource>(bytes));
  auto source = regard::TensorSource::from_gguf(std::move(parts), {"fuzz"});
  if (!source) return 0;
  for (const regard::TensorInfo& tensor : source->tensors()) {
    std::vector<uint8_t> out(static_cast<size_t>(tensor.bytes));
    demand(static_cast<bool>(source->read(tensor, out)));
    const auto view = source->view(tensor);
    demand(std::equal(out.begin(), out.end(), view.begin(), view.end()));
  }
  return 0;
}

std::vector<std::string> regard::fuzz::seeds() {
  using testing_support::ByteWriter;
  using testing_support::counting_bytes;
  using testing_support::GgufBuilder;
  std::vector<std::string> all;
  const auto add = [&](const GgufBuilder& b) { all.push_back(as_text(b.build())); };
  add(testing_support::small_gguf());
  add(GgufBuilder());
  for (const uint32_t version : {1u, 2u, 4u, 0x03000000u}) {
    GgufBuilder b;
    b.version = version;
    add(b);
  }
  // One tensor of each type number, known, withdrawn or unsupported.
  for (uint32_t type = 0; type <= 41; ++type) add(GgufBuilder().tensor("t", {256}, type, counting_bytes(1024)));
  for (const size_t bytes : {size_t{210}, size_t{144}, size_t{136}}) add(GgufBuilder().tensor("t", {256, 1}, bytes == 210 ? 14 : bytes == 144 ? 12 : 8, counting_bytes(bytes)));
  for (uint32_t type = 0; type <= 13; ++type) add(GgufBuilder().array<uint64_t>("k", type, {0, 1, 2}));
  add(GgufBuilder().scalar<uint16_t>("split.no", 2, 0).scalar<uint16_t>("split.count", 2, 1).scalar<int32_t>("split.tensors.count", 5, 1).tensor("t", {3}, 0, counting_bytes(12)));
  add(GgufBuilder().scalar<uint16_t>("split.no", 2, 1).scalar<uint16_t>("split.count", 2, 2));
  for (const uint32_t alignment : {0u, 1u, 64u, 8192u}) {
    GgufBuilder b;
    b.alignment = alignment == 64 ? 64 : 1;
    add(b.u32("general.alignment", alignment).tensor("t", {3}, 0, counting_bytes(12)));
  }
  add(GgufBuilder().tensor("t", {}, 0, counting_bytes(4)));
  add(GgufBuilder().tensor("t", {1, 1, 1, 1, 1}, 0, counting_bytes(4)));
  add(GgufBuilder().tensor("t", {1ull << 62, 1ull << 62}, 0, counting_bytes(4)));
  add(GgufBuilder().tensor("t", {1}, 0, counting_bytes(4), 32));
  add(GgufBuilder().u32("a", 1).u32("a", 2));
  return all;
}
