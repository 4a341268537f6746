#include "train/start_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "base/check.h"
#include "format/names.h"
#include "format/tokenizer_json.h"
#include "format/tokenizer_json_writer.h"
#include "model/convert_config.h"
#include "runtime/file.h"
#include "train/config_table.h"
#include "train/model_config.h"

namespace regard::train_loop {
namespace {

namespace fs = std::filesystem;
using Model = TrainConfig::Model;
using train_config::Choice;
using train_config::Value;

constexpr uint64_t kMaxTokenizer = uint64_t{256} << 20, kMaxConfig = uint64_t{16} << 20;

std::string text_of(const fs::path& path, uint64_t max_bytes) {
  const FileBytes bytes = read_file(path.string(), max_bytes).value_or_throw();
  return {reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()};
}

// Fields of the section model that change how a model is trained, not which model it is.
bool is_free(std::string_view name) {
  constexpr std::string_view kFree[] = {"embedding_dropout", "residual_dropout", "attention_dropout", "label_smoothing", "z_loss", "initializer_std", "recompute"};
  return std::find(std::begin(kFree), std::end(kFree), name) != std::end(kFree);
}

// Defaults that leave a number to something else: they claim nothing.
bool claims_nothing(const train_config::Field& field, const Value& value) {
  if (const auto* choice = std::get_if<Choice>(&value)) return train_config::words(field)[choice->index] == "of_type";
  if (const auto* number = std::get_if<int64_t>(&value)) return *number <= 0 && value == field.get(TrainConfig());
  if (const auto* text = std::get_if<std::string>(&value)) return text->empty();
  return false;
}

bool agree(const train_config::Field& field, const Value& given, const Value& has) {
  constexpr double kRounding = 1e-6;  // files keep some of these numbers in f32
  if (const auto* number = std::get_if<double>(&given)) return std::fabs(*number - std::get<double>(has)) <= kRounding * std::fabs(std::get<double>(has));
  if (field.name == "mask") return Mask::parse(std::get<std::string>(given)) == Mask::parse(std::get<std::string>(has));
  return given == has;
}

Model::Position position_of(nn::PositionKind position) {
  switch (position) {
    case nn::PositionKind::kLearned: return Model::Position::kLearned;
    case nn::PositionKind::kSinusoidal: return Model::Position::kSinusoidal;
    case nn::PositionKind::kRope: return Model::Position::kRope;
    case nn::PositionKind::kAlibi: return Model::Position::kAlibi;
    case nn::PositionKind::kT5: return Model::Position::kT5;
    case nn::PositionKind::kXl: return Model::Position::kXl;
    case nn::PositionKind::kNone: break;
  }
  return Model::Position::kNone;
}

Model::Architecture architecture_of(nn::Architecture architecture) {
  switch (architecture) {
    case nn::Architecture::kEncoder: return Model::Architecture::kEncoder;
    case nn::Architecture::kEncoderDecoder: return Model::Architecture::kEncoderDecoder;
    case nn::Architecture::kDecoder: break;
  }
  return Model::Architecture::kDecoder;
}

Model::Placement placement_of(nn::NormPlacement placement) {
  switch (placement) {
    case nn::NormPlacement::kPost: return Model::Placement::kPost;
    case nn::NormPlacement::kSandwich: return Model::Placement::kSandwich;
    case nn::NormPlacement::kPre: break;
  }
  return Model::Placement::kPre;
}

Model::Activation activation_of(nn::Activation activation) {
  switch (activation) {
    case nn::Activation::kSilu: return Model::Activation::kSilu;
    case nn::Activation::kGeluErf: return Model::Activation::kGeluErf;
    case nn::Activation::kRelu: return Model::Activation::kRelu;
    case nn::Activation::kGeluTanh: break;
  }
  return Model::Activation::kGeluTanh;
}

// What the section model would say of this shape. Biases and windows that only some layers have it has no word for.
Model section_of(const nn::TransformerConfig& shape, const Model& given) {
  Model m = given;
  const auto on = [](bool b) { return b ? Model::Switch::kOn : Model::Switch::kOff; };
  switch (nn::parameter_naming(shape)) {
    case nn::ParameterNaming::kGpt2: m.type = Model::Type::kGpt2; break;
    case nn::ParameterNaming::kLlama: m.type = Model::Type::kLlama; break;
    case nn::ParameterNaming::kT5:
    case nn::ParameterNaming::kRegard: m.type = Model::Type::kRegard; break;
  }
  const bool encoder = shape.architecture == nn::Architecture::kEncoder;
  m.architecture = architecture_of(shape.architecture);
  m.vocab_size = shape.vocab_size;
  m.hidden_size = shape.hidden_size;
  m.layers = shape.num_layers;
  m.encoder_layers = shape.architecture == nn::Architecture::kEncoderDecoder ? shape.num_encoder_layers : Model{}.encoder_layers;
  m.heads = shape.num_q_heads;
  m.kv_heads = shape.num_kv_heads;
  m.head_size = shape.head_dim;
  m.intermediate_size = shape.intermediate_size;
  m.max_positions = shape.max_positions;
  m.mask = (encoder ? shape.encoder_mask : shape.mask).text();
  m.position = position_of(shape.position);
  m.norm = shape.norm == nn::NormKind::kRms ? Model::Norm::kRmsNorm : Model::Norm::kLayerNorm;
  m.placement = placement_of(shape.placement);
  m.query_key_norm = shape.query_key_norm ? Model::QueryKeyNorm::kOn : Model::QueryKeyNorm::kOff;
  m.activation = activation_of(shape.activation);
  m.gated = on(shape.feed_forward == nn::FeedForwardKind::kGated);
  m.biases = shape.biases == nn::Biases::kAll ? Model::Switch::kOn : shape.biases == nn::Biases::kNone ? Model::Switch::kOff : Model::Switch::kOfType;
  m.tied = on(shape.head == nn::Head::kTied);
  m.norm_epsilon = shape.norm_eps;
  m.rope_theta = shape.rope.theta;
  m.embedding_scale = shape.embedding_scale;
  m.attention_softcap = shape.attention_softcap;
  m.final_softcap = shape.final_softcap;
  return m;
}

// A piece in a message: as it is, where it can be shown.
std::string shown(const std::string& piece) { return is_plain_name(piece, 80) ? piece : printable(piece); }

std::string with_spaces(std::string piece) {
  constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581, which stands for a space in vocabularies that merge by score
  for (size_t at = 0; (at = piece.find(kMark, at)) != std::string::npos; ++at) piece.replace(at, kMark.size(), " ");
  return piece;
}

// The file without the special tokens that the model has no rows for, or nothing when it has none of those.
std::optional<std::string> without_tokens_behind(int64_t vocab_size, const std::string& json, const std::string& name) {
  TokenizerSpec spec = tokenizer_json_spec(json, name).value_or_throw();
  return drop_special_behind(spec, vocab_size) > 0 ? std::optional(write_tokenizer_json(spec).value_or_throw()) : std::nullopt;
}

// A tokenizer with other ids would make another model's text of every number. A vocabulary that merges by score has no tokenizer.json, so
// there either may have spaces where the other has U+2581, and the named one may lack the tokens behind the pieces: bytes, and what stands for unknown text.
void expect_same_pieces(const TokenizerSpec& file, const std::string& path, const Tokenizer& named, const std::string& name, int64_t vocab_size) {
  const bool scored = std::holds_alternative<SpmSpec>(file.model);
  const std::string_view advice = scored ? "give the tokenizer.json that this file was made from" : "leave it out, and the file's is taken";
  if (named.vocab_size() > vocab_size) {
    fail(Code::kInvalidArgument, "[train] data.tokenizer '{}' has {} ids, and the model in '{}' has {}; {}", name, named.vocab_size(), path, vocab_size, advice);
  }
  const auto has = static_cast<size_t>(named.vocab_size());
  for (size_t id = 0; id < std::max(file.pieces.size(), has); ++id) {
    const std::string theirs = id < file.pieces.size() ? file.pieces[id] : "", ours = id < has ? named.token_text(static_cast<int32_t>(id)) : "";
    if (theirs == ours) continue;
    if (scored && (id < has ? with_spaces(theirs) == with_spaces(ours) : file.kinds[id] != TokenKind::kNormal)) continue;
    fail(Code::kInvalidArgument, "[train] data.tokenizer '{}' has '{}' as id {}, and the tokenizer of '{}' has '{}'; {}", name, shown(ours), id, path, shown(theirs),
         advice);
  }
}

}  // namespace

std::string first_file_of(const RunIdentity& run) { return parse_train_config(run.config, "the configuration of the run").run.init; }

void adopt_shape(const nn::TransformerConfig& shape, const std::string& path, TrainConfig& config) {
  TrainConfig adopted = config;
  adopted.model = section_of(shape, config.model);
  const TrainConfig defaults;
  for (const train_config::Field& field : train_config::fields()) {
    if (field.section != "model" || is_free(field.name)) continue;
    const Value given = field.get(config), has = field.get(adopted);
    const bool named = std::find(config.given.begin(), config.given.end(), field.full_name()) != config.given.end();
    if ((!named && given == field.get(defaults)) || claims_nothing(field, given) || agree(field, given, has)) continue;
    fail(Code::kInvalidArgument, "[train] {} is '{}', but the model in '{}' has '{}'; leave it out, or give that", field.full_name(),
         train_config::value_text(field, given), path, train_config::value_text(field, has));
  }
  config = adopted;
}

nn::TransformerConfig with_free_fields(nn::TransformerConfig shape, const TrainConfig& config, const std::string& path) {
  const Model& m = config.model;
  if (config.run.sequence > shape.max_positions) {
    fail(Code::kInvalidArgument, "[train] run.sequence is {}, but the model in '{}' knows {} positions; expected at most as many", config.run.sequence, path,
         shape.max_positions);
  }
  shape.embedding_dropout = m.embedding_dropout;
  shape.residual_dropout = m.residual_dropout;
  shape.attention_dropout = m.attention_dropout;
  shape.label_smoothing = m.label_smoothing;
  shape.z_loss = m.z_loss;
  shape.init_std = m.initializer_std;
  shape.recompute = recompute_of(m.recompute);
  shape.precision = precision_of(config.run.precision);
  shape.rope.declared_length = shape.windowed_rope.declared_length = config.run.sequence;
  return nn::completed(shape);
}

FileTokenizer tokenizer_of(const model::TrainableFile& file, const std::string& named) {
  const model::OpenedModel& opened = file.opened();
  std::vector<std::pair<std::string, std::string>> beside;
  if (opened.chat_template) beside.emplace_back("chat_template.jinja", *opened.chat_template);
  if (!named.empty()) {
    Tokenizer tokenizer = Tokenizer::from_file(named);
    std::string json = text_of(named, kMaxTokenizer);
    const int64_t vocab_size = file.shape(1).vocab_size;
    if (opened.tokenizer && tokenizer.vocab_size() > vocab_size) {
      if (auto less = without_tokens_behind(vocab_size, json, named)) {
        json = std::move(*less);
        tokenizer = build_tokenizer(tokenizer_json_spec(json, named).value_or_throw()).value_or_throw();
      }
    }
    if (opened.tokenizer) {
      expect_same_pieces(*opened.tokenizer, file.path(), tokenizer, named, vocab_size);
      // Tokens that the named one lacks would be added to it by other programs.
      if (!std::holds_alternative<SpmSpec>(opened.tokenizer->model))
        beside.emplace_back("tokenizer_config.json", model::tokenizer_config_json(*opened.tokenizer, file.shape(1).max_positions));
    }
    return {std::move(tokenizer), std::move(json), std::move(beside)};
  }
  if (!opened.tokenizer) fail(Code::kInvalidArgument, "[train] '{}' has no tokenizer; give data.tokenizer", file.path());
  const fs::path directory(file.path());
  std::error_code ignored;
  if (fs::is_directory(directory, ignored)) {
    if (fs::exists(directory / "tokenizer_config.json", ignored))
      beside.emplace_back("tokenizer_config.json", text_of(directory / "tokenizer_config.json", kMaxConfig));
    return {Tokenizer::from_file(directory / "tokenizer.json"), text_of(directory / "tokenizer.json", kMaxTokenizer), std::move(beside)};
  }
  auto written = write_tokenizer_json(*opened.tokenizer);
  if (!written) fail(written.failure().code, "{}; give data.tokenizer, the tokenizer.json that the file was made from", written.failure().message);
  // What a checkpoint holds is what the run reads texts with, so that it goes on with the same ids.
  TokenizerSpec spec = tokenizer_json_spec(*written, "tokenizer.json").value_or_throw();
  const std::string config = model::tokenizer_config_json(*opened.tokenizer, file.shape(1).max_positions);
  apply_tokenizer_config(config, "tokenizer_config.json", spec).value_or_throw();
  beside.emplace_back("tokenizer_config.json", config);
  return {build_tokenizer(std::move(spec)).value_or_throw(), std::move(*written), std::move(beside)};
}

}  // namespace regard::train_loop
