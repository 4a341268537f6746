#include "model/open.h"

#include <filesystem>

#include "base/check.h"
#include "format/chat_template_file.h"
#include "format/gguf_tokenizer.h"
#include "format/hf_config.h"
#include "format/tokenizer_json.h"
#include "model/facts_gguf.h"
#include "model/facts_hf.h"
#include "model/family.h"
#include "model/limits.h"
#include "model/t5_shape.h"
#include "model/trained_shape.h"
#include "runtime/file.h"

namespace regard::model {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kTrainedType = "regard", kT5Type = "t5";
constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20, kMaxTokenizerBytes = uint64_t{256} << 20;

bool is_there(const fs::path& path) {
  std::error_code error;
  const bool there = fs::exists(path, error);
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    fail(Code::kIo, "[Model::load] cannot look at {}: {}", path.string(), error.message());
  return there;
}

std::string read_text(const fs::path& path, uint64_t max_bytes) {
  const FileBytes bytes = read_file(path.string(), max_bytes).value_or_throw();
  return {reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()};
}

// What a reader refuses, with the path of the file that it knows by its last name: "[json] config.json: $.x: ..." or "[config.json] x ...".
template <class Read>
auto naming_the_path(const fs::path& directory, Read&& read) {
  try {
    return read();
  } catch (const Error& error) {
    std::string_view says = error.what();
    if (says.starts_with("[json] ")) says.remove_prefix(7);
    const bool bracket = says.starts_with('[');
    if (bracket) says.remove_prefix(1);
    for (const std::string_view name : {"config.json", "generation_config.json", "tokenizer_config.json"}) {
      if (!says.starts_with(name)) continue;
      says.remove_prefix(name.size());
      if (bracket && says.starts_with("] ")) says.remove_prefix(2);
      else if (says.starts_with(": ")) says.remove_prefix(2);
      else continue;
      fail(error.code(), "[Model::load] {}: {}", (directory / name).string(), says);
    }
    throw;
  }
}

Facts facts_of(const HfConfig& hf, const std::string& config) {
  if (hf.model_type != kTrainedType && hf.model_type != kT5Type) return facts_from_hf(hf).value_or_throw();
  Facts facts;
  facts.kind = FileKind::kHuggingFace;
  facts.architecture = hf.model_type;
  if (hf.model_type == kT5Type) add_t5(config, facts).value_or_throw();
  else add_shape(read_trained_shape(config).value_or_throw(), facts);
  if (hf.model_type == kTrainedType) facts.class_names = read_class_names(config, facts.shape->num_classes).value_or_throw();
  for (const int64_t id : hf.eos_ids) facts.eos_ids.push_back(static_cast<int32_t>(id));
  if (hf.bos_id) facts.bos_id = static_cast<int32_t>(*hf.bos_id);
  if (!facts.decoder_start && facts.shape->architecture == nn::Architecture::kEncoderDecoder) facts.decoder_start = facts.bos_id;
  return facts;
}

// The directory's part of the facts: config.json, tokenizer.json, the template.
OpenedModel open_directory(const fs::path& directory, TensorAccess access, WithTokenizer with_tokenizer) {
  if (!is_there(directory / "config.json") && is_there(directory / "train.json")) {
    const bool best = is_there(directory / "best");
    fail(Code::kNotFound, "[Model::load] {0} is the directory of a training run; take {0}/latest{1}", directory.string(), best ? fmt::format(" or {}/best", directory.string()) : "");
  }
  if (!is_there(directory / "config.json"))
    fail(Code::kNotFound, "[Model::load] {} has no config.json; expected a Hugging Face directory (config.json, model.safetensors) or a .gguf file",
         directory.string());
  const std::string config = read_text(directory / "config.json", kMaxConfigBytes);
  const fs::path generation_path = directory / "generation_config.json";
  const std::string generation = is_there(generation_path) ? read_text(generation_path, kMaxConfigBytes) : std::string();
  const HfConfig hf = naming_the_path(directory, [&] { return read_hf_config(config, generation).value_or_throw(); });
  Facts facts = naming_the_path(directory, [&] { return facts_of(hf, config); });
  OpenedModel opened{directory.string(), TensorSource::open(directory.string(), access).value_or_throw(), std::move(facts), {}, false, {}};
  opened.has_tokenizer = is_there(directory / "tokenizer.json");
  const bool has_tokenizer_config = is_there(directory / "tokenizer_config.json");
  const std::string tokenizer_config = has_tokenizer_config ? read_text(directory / "tokenizer_config.json", kMaxConfigBytes) : std::string();
  if (opened.has_tokenizer && with_tokenizer == WithTokenizer::kYes) {
    opened.tokenizer = tokenizer_json_spec(read_text(directory / "tokenizer.json", kMaxTokenizerBytes), (directory / "tokenizer.json").string()).value_or_throw();
    if (has_tokenizer_config)
      if (auto done = apply_tokenizer_config(tokenizer_config, (directory / "tokenizer_config.json").string(), *opened.tokenizer); !done)
        throw_error(done.failure().code, done.failure().message);
  }
  if (is_there(directory / "chat_template.jinja"))
    opened.chat_template = read_text(directory / "chat_template.jinja", kMaxConfigBytes);
  else if (has_tokenizer_config)
    opened.chat_template = naming_the_path(directory, [&] { return chat_template_of_config(tokenizer_config).value_or_throw(); });
  return opened;
}

// A vocabulary of characters has rows behind the trained ones, for other programs: here they are not there.
void drop_added_rows(OpenedModel& opened) {
  const auto rows = opened.source.metadata()->optional_integer(kTrainedRowsKey, 1, kMaxVocab).value_or_throw();
  if (!rows) return;
  const Family& family = find_family(opened.facts);
  for (const Part part : {Part::kEmbedding, Part::kHead}) {
    const PartNames* names = family.find(part);
    const std::string name = names != nullptr ? tensor_name(names->gguf, 0, ".weight") : std::string();
    if (opened.source.find(name) != nullptr) opened.source.keep_rows(name, *rows).value_or_throw();
  }
  opened.facts.vocab_size = *rows;
  std::erase_if(opened.facts.eos_ids, [&](int32_t id) { return id >= *rows; });
  if (opened.facts.bos_id && *opened.facts.bos_id >= *rows) opened.facts.bos_id.reset();
}

OpenedModel open_gguf(const std::string& path, TensorAccess access, WithTokenizer with_tokenizer) {
  TensorSource source = TensorSource::open(path, access).value_or_throw();
  const GgufMetadata* metadata = source.metadata();
  if (metadata == nullptr)
    fail(Code::kInvalidArgument, "[Model::load] {} holds tensors alone; give the directory that has its config.json", path);
  Facts facts = facts_from_gguf(*metadata).value_or_throw();
  OpenedModel opened{path, std::move(source), std::move(facts), {}, false, {}};
  metadata = opened.source.metadata();
  opened.has_tokenizer = metadata->find("tokenizer.ggml.model") != nullptr;
  if (opened.has_tokenizer && with_tokenizer == WithTokenizer::kYes)
    opened.tokenizer = gguf_tokenizer_spec(*metadata, fs::path(path).filename().string()).value_or_throw();
  drop_added_rows(opened);
  if (const auto text = metadata->optional_string("tokenizer.chat_template").value_or_throw()) opened.chat_template = std::string(*text);
  return opened;
}

}  // namespace

std::string directory_name(const std::string& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();  // links stay, "." and ".." go
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

OpenedModel open_model(const std::string& path, FileAccess access, WithTokenizer with_tokenizer) {
  const TensorAccess tensor_access = access == FileAccess::kMap ? TensorAccess::kMap : TensorAccess::kRead;
  std::error_code ignored;
  if (!is_there(path)) fail(Code::kNotFound, "[Model::load] there is no file or directory {}", path);
  const auto open = [&](WithTokenizer with) {
    return fs::is_directory(path, ignored) ? open_directory(path, tensor_access, with) : open_gguf(path, tensor_access, with);
  };
  if (with_tokenizer == WithTokenizer::kNo) return open(with_tokenizer);
  try {
    return open(with_tokenizer);
  } catch (const Error&) {
    // Nobody should have to mend the tokenizer of a model that does not run here anyway.
    (void)find_family(open(WithTokenizer::kNo).facts);
    throw;
  }
}

}  // namespace regard::model
