// Tokenizer::from_file: which of the two formats a file is, told by its first bytes.
#include <algorithm>
#include <array>
#include <string>

#include "base/check.h"
#include "format/file_source.h"
#include "format/gguf.h"
#include "format/gguf_tokenizer.h"
#include "format/tokenizer_json.h"
#include "regard/tokenizer.h"
#include "runtime/file.h"
#include "text/tokenizer_spec.h"

namespace regard {
namespace {

constexpr uint64_t kMaxJsonBytes = uint64_t{256} << 20;

std::string_view text_of(const FileBytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()};
}

Result<TokenizerSpec> read_spec(const std::filesystem::path& path) {
  REGARD_TRY(File file, File::open(path.string()));
  const std::string name = path.filename().string();
  std::array<uint8_t, 4> magic{};
  if (file.size() >= magic.size()) REGARD_CHECK(file.read_at(0, std::as_writable_bytes(std::span(magic))));
  if (std::equal(magic.begin(), magic.end(), "GGUF")) {
    REGARD_TRY(const GgufFile gguf, read_gguf(FileSource(std::move(file)), name));
    return gguf_tokenizer_spec(gguf.metadata, name);
  }
  REGARD_TRY(const FileBytes bytes, read_file(file, kMaxJsonBytes));
  REGARD_TRY(TokenizerSpec spec, tokenizer_json_spec(text_of(bytes), path.string()));
  const std::filesystem::path config = path.parent_path() / "tokenizer_config.json";
  std::error_code ignored;  // a file that cannot be looked at is not there
  if (std::filesystem::exists(config, ignored)) {
    REGARD_TRY(const FileBytes config_bytes, read_file(config.string(), kMaxJsonBytes));
    REGARD_CHECK(apply_tokenizer_config(text_of(config_bytes), config.string(), spec));
  }
  return spec;
}

}  // namespace

Tokenizer Tokenizer::from_file(const std::filesystem::path& path) {
  TokenizerSpec spec = read_spec(path).value_or_throw();
  return build_tokenizer(std::move(spec)).value_or_throw();
}

}  // namespace regard
