// From one format to the other. Read Conversion::run(): plan the tensors by the family's table, say the configuration in the other
// form, read that back, and only then write.
#include "regard/convert.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "format/gguf_tokenizer_writer.h"
#include "format/gguf_writer.h"
#include "format/safetensors_writer.h"
#include "format/tokenizer_json_writer.h"
#include "model/convert_config.h"
#include "model/convert_tensor.h"
#include "model/facts_gguf.h"
#include "model/facts_hf.h"
#include "model/file_parts.h"
#include "model/open.h"

namespace regard {
namespace {

namespace fs = std::filesystem;
using namespace model;

// A tensor that will be written.
struct Planned {
  const TensorInfo* source = nullptr;  // null: `made`
  Rearrangement how;
  std::string name;
  DType type = DType::kF32;
  std::vector<int64_t> shape;
  int64_t more_rows = 0;
  Part part = Part::kEmbedding;  // where rows are added
  std::vector<float> made;
};

// A directory that is written file by file, and goes again with them where the last one is not reached.
class NewDirectory {
 public:
  explicit NewDirectory(fs::path path) : path_(std::move(path)) {
    std::error_code error;
    for (fs::path missing = path_; !missing.empty() && !fs::exists(missing, error); missing = missing.parent_path()) made_.push_back(missing);
    fs::create_directories(path_, error);
    if (error) {
      remove_made();
      fail(error == std::errc::not_a_directory || error == std::errc::no_such_file_or_directory ? Code::kNotFound : Code::kIo, "[convert] cannot make the directory '{}': {}", path_.string(),
           error.message());
    }
  }
  NewDirectory(const NewDirectory&) = delete;
  ~NewDirectory() {
    if (!kept_) remove_made();
  }

  // Where a file goes. One that was there before is replaced whole or not at all, and stays.
  std::string file(const char* name) {
    fs::path file = path_ / name;
    std::error_code error;
    if (!fs::exists(file, error)) files_.push_back(file);
    return file.string();
  }
  void keep() { kept_ = true; }

 private:
  void remove_made() const {
    std::error_code ignored;
    for (const fs::path& file : files_) fs::remove(file, ignored);
    for (const fs::path& directory : made_) fs::remove(directory, ignored);  // of these an empty one alone
  }

  fs::path path_;
  std::vector<fs::path> made_, files_;  // the innermost first
  bool kept_ = false;
};

class Conversion {
 public:
  Conversion(const std::string& from, const std::string& to, const ConvertOptions& options)
      : to_(to),
        options_(options),
        opened_(open_model(from, FileAccess::kRead, options.tokenizer == ConvertOptions::Tokenizer::kConvert ? WithTokenizer::kYes : WithTokenizer::kNo)),
        family_(find_family(opened_.facts)),
        towards_(fs::path(to).extension() == ".gguf" ? Towards::kGguf : Towards::kHuggingFace) {
    require(!to.empty(), "[convert] the name of the result is empty");
  }

  ConvertReport run() {
    const bool from_gguf = opened_.facts.kind == FileKind::kGguf;
    if (from_gguf == (towards_ == Towards::kGguf))
      fail(Code::kInvalidArgument, "[convert] '{}' and '{}' are of one format; give a directory and a name that ends in .gguf", opened_.path, to_);
    if (family_.gguf_architectures.empty())
      fail(Code::kUnsupported, "[convert] a model of type '{}' has no GGUF form here: no architecture of that format that this library knows has its shape", opened_.facts.architecture);
    if (options_.type && *options_.type != DType::kF32 && *options_.type != DType::kF16 && *options_.type != DType::kBF16 &&
        !(*options_.type == DType::kQ8_0 && towards_ == Towards::kGguf))
      fail(Code::kUnsupported, "[convert] type {}; expected f32, f16, bf16, or (in a GGUF file) q8_0", info(*options_.type).name);
    complete_facts("convert", opened_, family_);
    config_ = configure(family_, opened_.facts);
    const PartNames* head = family_.find(Part::kHead);
    tied_ = config_.tied_embeddings || find_part(opened_, family_, *head, 0, ".weight") == nullptr;
    config_.tied_embeddings = tied_;
    report_.family = family_.name;
    return towards_ == Towards::kGguf ? to_gguf() : to_directory();
  }

 private:
  std::string target_name(const PartNames& part, int64_t layer, std::string_view suffix) const {
    return tensor_name(towards_ == Towards::kGguf ? part.gguf : part.hugging_face, layer, suffix);
  }

  // Every tensor of the source finds its place, or is named.
  void plan(int64_t more_rows) {
    for (const PartNames& part : family_.parts) {
      const bool once = part.hugging_face.find("{}") == std::string_view::npos;
      for (int64_t layer = 0; layer < (once ? 1 : config_.num_layers); ++layer)
        for (const std::string_view suffix : {".weight", ".bias"}) plan_tensor(part, layer, suffix, more_rows);
    }
    const std::vector<std::string> unused = opened_.source.unused();
    for (const std::string& name : unused)
      if (!name.ends_with("inv_freq") && !name.ends_with("masked_bias") && !name.ends_with(".attn.bias"))
        fail(Code::kCorruptData, "[convert] no {} model has a tensor {}", family_.name, name);
  }

  void plan_tensor(const PartNames& part, int64_t layer, std::string_view suffix, int64_t more_rows) {
    if (part.part == Part::kRopeDivisors) return;
    const std::string name = part_name(opened_.facts, part, layer, suffix);
    const TensorInfo* source = find_part(opened_, family_, part, layer, suffix);
    const bool from_directory = opened_.facts.kind == FileKind::kHuggingFace;
    if (source == nullptr) {
      const bool needed = suffix == ".weight" ? part.part != Part::kHead : part.bias == Bias::kAlways;
      if (needed) fail(Code::kCorruptData, "[convert] {} lacks tensor {}, which every {} model has", opened_.path, name, family_.name);
      return;
    }
    opened_.source.ignore(source->name);
    if (part.part == Part::kHead && tied_) return;  // the embedding again
    if (!is_weight_type(source->type)) fail(Code::kUnsupported, "[convert] tensor {} is of type {}, which no model computes with", source->name, info(source->type).name);
    Planned planned;
    planned.source = source;
    planned.how = rearrangement_of(family_, config_, part.part, suffix == ".bias");
    planned.name = target_name(part, layer, suffix);
    std::vector<int64_t> here = planned.shape = part_shape(config_, part.part, suffix == ".bias");
    if (planned.how.transposed) std::swap(from_directory ? here[0] : planned.shape[0], from_directory ? here[1] : planned.shape[1]);
    if (source->shape != here)
      fail(Code::kCorruptData, "[convert] tensor {} has shape {}; the configuration implies {}", source->name, shape_text(source->shape), shape_text(here));
    if (part.part == Part::kEmbedding || part.part == Part::kHead) planned.more_rows = more_rows;
    planned.part = part.part;
    if (planned.more_rows > 0) planned.shape[0] += more_rows;
    planned.type = type_for(planned, part.part);
    planned_.push_back(std::move(planned));
  }

  DType type_for(const Planned& planned, Part part) {
    const bool gguf = towards_ == Towards::kGguf, vector = planned.shape.size() < 2;
    if (gguf && (vector || part == Part::kPositions)) return DType::kF32;
    const DType own = info(planned.source->type).values == 1 ? planned.source->type : DType::kF32;
    if (vector && !options_.type) return matrices_;  // where they hold it, see type_of_vector()
    DType type = options_.type.value_or(own);
    if (gguf && !options_.type && planned.source->type == DType::kQ8_0) type = DType::kQ8_0;
    if (type == DType::kQ8_0 && planned.shape.back() % info(type).values != 0) {
      ++report_.f16_instead;
      type = DType::kF16;
    }
    if (!gguf && !vector && part == Part::kEmbedding) matrices_ = type;  // the first part of every family
    return type;
  }

  std::vector<float> values_of(const Planned& planned) {
    if (planned.source == nullptr) return planned.made;
    if (options_.stop != nullptr && options_.stop->stop_requested()) fail(Code::kCancelled, "[convert] stopped on request");
    const TensorInfo& source = *planned.source;
    std::vector<float> values = decode_tensor(opened_.source, source);
    std::vector<int64_t> shape = source.shape;
    rearrange(planned.how, towards_, values, shape);
    if (planned.more_rows > 0) add_rows(planned, shape[0], values);
    done_ += source.bytes;
    if (options_.progress) options_.progress(done_, std::max(done_, total_));
    return values;
  }

  // Rows that nobody trained: what the head reads them with should never be the largest logit, and seldom one that is drawn.
  void add_rows(const Planned& planned, int64_t known, std::vector<float>& values) {
    std::vector<float> row = mean_row(values, known);
    const bool of_head = tied_ || planned.part == Part::kHead;
    const bool layer_norm = config_.norm == nn::NormKind::kLayer && config_.placement == nn::NormPlacement::kPre && config_.final_softcap == 0;
    const PartNames* norm = family_.find(Part::kFinalNorm);
    const TensorInfo* gains = norm != nullptr ? find_part(opened_, family_, *norm, 0, ".weight") : nullptr;
    const TensorInfo* biases = norm != nullptr ? find_part(opened_, family_, *norm, 0, ".bias") : nullptr;
    if (of_head && layer_norm && gains != nullptr && biases != nullptr)
      if (auto below = unlikely_row(row, decode_tensor(opened_.source, *gains), decode_tensor(opened_.source, *biases), planned.type)) {
        row = std::move(*below);
        report_.added_unlikely = true;
      }
    for (int64_t r = 0; r < planned.more_rows; ++r) values.insert(values.end(), row.begin(), row.end());
  }

  void refuse_existing(const fs::path& path) const {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) {
      if (towards_ == Towards::kGguf) fail(Code::kInvalidArgument, "[convert] '{}' is a directory; give the name of a file", path.string());
      if (fs::is_empty(path, ignored)) return;
    } else if (towards_ == Towards::kHuggingFace && fs::exists(path, ignored)) {
      fail(Code::kInvalidArgument, "[convert] '{}' is a file; a name that does not end in .gguf is that of a directory", path.string());
    }
    if (options_.existing == ConvertOptions::Existing::kRefuse && fs::exists(path, ignored))
      fail(Code::kInvalidArgument, "[convert] '{}' is there already; give another name, or ask for it to be replaced", path.string());
  }

  void count_planned() {
    for (const Planned& p : planned_) {
      if (p.source != nullptr) total_ += p.source->bytes;
      int64_t values = 1;
      for (const int64_t n : p.shape) values *= n;
      report_.tensor_bytes += static_cast<uint64_t>(values / info(p.type).values * info(p.type).bytes);
    }
    report_.tensors = static_cast<int64_t>(planned_.size());
  }

  ConvertReport to_gguf() {
    refuse_existing(to_);
    Facts& facts = opened_.facts;
    GgufMetadata metadata = gguf_metadata(family_, facts, config_, directory_name(opened_.path));
    int64_t rows = config_.vocab_size;
    if (opened_.tokenizer) rows = add_gguf_tokenizer(*opened_.tokenizer, rows, metadata).value_or_throw();
    add_end_ids(metadata);
    if (opened_.chat_template && opened_.tokenizer) metadata.insert("tokenizer.chat_template", gguf_value(std::string_view(*opened_.chat_template)));
    metadata.insert(fmt::format("{}.vocab_size", family_.gguf_architectures.front()), gguf_value(static_cast<uint32_t>(rows)));
    report_.added_rows = rows - config_.vocab_size;
    plan(report_.added_rows);
    const std::vector<float> divisors = config_.position == nn::PositionKind::kRope ? rope_divisors(config_.rope) : std::vector<float>();
    DecoderConfig written = configure(family_, facts_from_gguf(metadata).value_or_throw());
    if (!divisors.empty()) {
      if (family_.find(Part::kRopeDivisors) == nullptr)
        fail(Code::kUnsupported, "[convert] rotary scaling 'llama3': GGUF files of the family {} have no place for it", family_.name);
      Planned made;
      made.name = tensor_name(family_.find(Part::kRopeDivisors)->gguf, 0, ".weight");
      made.shape = {static_cast<int64_t>(divisors.size())};
      made.made = divisors;
      planned_.push_back(std::move(made));
      written.rope.divisors.assign(divisors.begin(), divisors.end());
    }
    expect_same(config_, written);
    count_planned();
    std::vector<GgufTensorHead> heads;
    for (const Planned& p : planned_) heads.push_back({p.name, p.type, p.shape});
    const auto bytes = [this](size_t i) -> Result<std::vector<uint8_t>> { return encode(values_of(planned_[i]), planned_[i].type); };
    const Overwrite overwrite = options_.existing == ConvertOptions::Existing::kReplace ? Overwrite::kReplace : Overwrite::kRefuse;
    std::move(write_gguf(to_, metadata, heads, bytes, overwrite)).value_or_throw();
    return report_;
  }

  // The ids that end a text, where the tokenizer did not name them.
  void add_end_ids(GgufMetadata& metadata) const {
    const std::vector<int32_t>& ids = opened_.facts.eos_ids;
    if (ids.size() > 2) fail(Code::kUnsupported, "[convert] {} tokens end a text; a GGUF file names two", ids.size());
    if (ids.empty()) return;
    const auto put = [&](const char* key, int32_t id) { metadata.insert(key, gguf_value(static_cast<uint32_t>(id))); };
    put("tokenizer.ggml.eos_token_id", ids[0]);  // insert() keeps what the tokenizer said
    const auto named = metadata.optional_integer("tokenizer.ggml.eos_token_id", 0, INT32_MAX).value_or_throw();
    for (const int32_t id : ids)
      if (id != named) put("tokenizer.ggml.eot_token_id", id);
  }

  ConvertReport to_directory() {
    const fs::path folder(to_);
    refuse_existing(folder);
    plan(0);
    count_planned();
    const std::string_view dtypes[] = {"float32", "float16", "bfloat16"};
    const DType type = options_.type.value_or(matrices_);
    const std::string config_json = hf_config_json(family_, opened_.facts, config_, dtypes[type == DType::kF16 ? 1 : type == DType::kBF16 ? 2 : 0]);
    expect_same(config_, configure(family_, facts_from_hf(read_hf_config(config_json).value_or_throw()).value_or_throw()));
    std::string tokenizer_json;
    if (opened_.tokenizer) {
      if (std::holds_alternative<SpmSpec>(opened_.tokenizer->model))
        fail(Code::kUnsupported, "[convert] the tokenizer merges by score, which tokenizer.json cannot say; convert the model without its tokenizer (--without-tokenizer)");
      tokenizer_json = write_tokenizer_json(*opened_.tokenizer).value_or_throw();
    }
    NewDirectory written(folder);
    write_tensors(written);
    const auto text = [&](const char* name, const std::string& bytes) {
      std::move(write_file(written.file(name), std::as_bytes(std::span(bytes)))).value_or_throw();
    };
    if (!tokenizer_json.empty()) {
      text("tokenizer.json", tokenizer_json);
      text("tokenizer_config.json", tokenizer_config_json(*opened_.tokenizer, config_.context));
      if (opened_.chat_template) text("chat_template.jinja", *opened_.chat_template);
    }
    text("config.json", config_json);  // last: without it the directory is no model
    written.keep();
    return report_;
  }

  void write_tensors(NewDirectory& folder) {
    std::vector<std::vector<uint8_t>> bytes;
    std::vector<SafetensorsEntry> entries;
    for (Planned& p : planned_) {
      const std::vector<float> values = values_of(p);
      if (p.shape.size() < 2 && !options_.type && !holds_exactly(values, p.type)) p.type = DType::kF32;
      bytes.push_back(encode(values, p.type));
    }
    for (size_t i = 0; i < planned_.size(); ++i)
      entries.push_back({planned_[i].name, planned_[i].type, planned_[i].shape, std::as_bytes(std::span(bytes[i]))});
    const std::pair<std::string, std::string> metadata[] = {{"format", "pt"}};
    std::move(write_safetensors(folder.file("model.safetensors"), entries, metadata)).value_or_throw();
  }

  std::string to_;
  const ConvertOptions& options_;
  OpenedModel opened_;
  const Family& family_;
  Towards towards_;
  DecoderConfig config_;
  bool tied_ = false;
  DType matrices_ = DType::kF32;
  std::vector<Planned> planned_;
  ConvertReport report_;
  uint64_t done_ = 0, total_ = 0;
};

}  // namespace

ConvertReport convert_model(const std::string& from, const std::string& to, const ConvertOptions& options) {
  return Conversion(from, to, options).run();
}

}  // namespace regard
