#include "train/config_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace regard::train_config {
namespace {

template <auto kSection, auto kMember>
Value get(const TrainConfig& config) {
  const auto& value = (config.*kSection).*kMember;
  using T = std::decay_t<decltype(value)>;
  if constexpr (std::is_enum_v<T>) {
    return Choice{static_cast<size_t>(value)};
  } else {
    return value;
  }
}

template <auto kSection, auto kMember>
void set(TrainConfig& config, const Value& value) {
  auto& at = (config.*kSection).*kMember;
  using T = std::decay_t<decltype(at)>;
  if constexpr (std::is_enum_v<T>) {
    at = static_cast<T>(std::get<Choice>(value).index);
  } else {
    at = std::get<T>(value);
  }
}

template <auto kSection, auto kMember>
constexpr Field number(std::string_view section, std::string_view name, double min, double max, std::string_view help,
                       OnResume on_resume = OnResume::kFixed) {
  return {section, name, get<kSection, kMember>, set<kSection, kMember>, min, max, {}, on_resume, help};
}
template <auto kSection, auto kMember>
constexpr Field text(std::string_view section, std::string_view name, std::string_view help, OnResume on_resume = OnResume::kFixed) {
  return {section, name, get<kSection, kMember>, set<kSection, kMember>, 0, 0, {}, on_resume, help};
}
template <auto kSection, auto kMember>
constexpr Field choice(std::string_view section, std::string_view name, std::string_view choices, std::string_view help,
                       OnResume on_resume = OnResume::kFixed) {
  return {section, name, get<kSection, kMember>, set<kSection, kMember>, 0, 0, choices, on_resume, help};
}

using C = TrainConfig;
using M = C::Model;
using D = C::Data;
using O = C::Optimizer;
using S = C::Schedule;
using R = C::Run;
constexpr double kMillion = 1e6, kBillion = 1e9;

constexpr Field kFields[] = {
    choice<&C::model, &M::type>("model", "type", "gpt2|llama|regard", "The family: what other programs can load, or free in all fields."),
    choice<&C::model, &M::architecture>("model", "architecture", "decoder|encoder|encoder_decoder", "What reads and what writes."),
    number<&C::model, &M::vocab_size>("model", "vocab_size", 0, kBillion, "Tokens of the vocabulary; 0: those of the tokenizer, or of the task."),
    number<&C::model, &M::hidden_size>("model", "hidden_size", 1, kMillion, "Numbers per token between the blocks."),
    number<&C::model, &M::layers>("model", "layers", 1, 1000, "Blocks (of an encoder-decoder: of its decoder)."),
    number<&C::model, &M::encoder_layers>("model", "encoder_layers", 1, 1000, "Blocks of the encoder of an encoder-decoder."),
    number<&C::model, &M::heads>("model", "heads", 1, 1000, "Query heads of a block."),
    number<&C::model, &M::kv_heads>("model", "kv_heads", 0, 1000, "Key and value heads, a divisor of heads; 0: as many."),
    number<&C::model, &M::head_size>("model", "head_size", 0, 4096, "Numbers per head; 0: hidden_size / heads."),
    number<&C::model, &M::intermediate_size>("model", "intermediate_size", -1, kMillion,
                                             "Width of the feed-forward; 0: none at all; -1: 4 x hidden_size, 8/3 of it when gated."),
    number<&C::model, &M::max_positions>("model", "max_positions", 0, kBillion, "Positions that the model knows; 0: run.sequence."),
    text<&C::model, &M::mask>("model", "mask", "Which keys a query sees, as regard mask draws it; empty: causal, in an encoder full."),
    choice<&C::model, &M::position>("model", "position", "of_type|learned|sinusoidal|rope|alibi|t5|xl|none", "How the model knows where a token stands."),
    choice<&C::model, &M::norm>("model", "norm", "of_type|layer_norm|rms_norm", "The kind of norm."),
    choice<&C::model, &M::placement>("model", "placement", "pre|post|sandwich", "Norms before the parts of a block, behind them, or before and behind."),
    choice<&C::model, &M::query_key_norm>("model", "query_key_norm", "off|on", "Norms of queries and keys, per head, before they are turned."),
    choice<&C::model, &M::activation>("model", "activation", "of_type|gelu_tanh|gelu_erf|silu|relu", "Of the feed-forward."),
    choice<&C::model, &M::gated>("model", "gated", "of_type|on|off", "A feed-forward whose one half gates the other."),
    choice<&C::model, &M::biases>("model", "biases", "of_type|on|off", "Biases of linear layers and norms."),
    choice<&C::model, &M::tied>("model", "tied", "of_type|on|off", "One matrix for the embedding and the head."),
    number<&C::model, &M::norm_epsilon>("model", "norm_epsilon", 1e-12, 1, "Added to the variance."),
    number<&C::model, &M::rope_theta>("model", "rope_theta", 1, 1e12, "Base of the rotary frequencies."),
    number<&C::model, &M::embedding_scale>("model", "embedding_scale", -kMillion, kMillion, "Multiplies token embeddings; the original Transformer has sqrt(hidden_size)."),
    number<&C::model, &M::attention_softcap>("model", "attention_softcap", 0, kMillion, "c: a score s becomes c tanh(s / c); 0: none."),
    number<&C::model, &M::final_softcap>("model", "final_softcap", 0, kMillion, "The same for logits."),
    number<&C::model, &M::embedding_dropout>("model", "embedding_dropout", 0, 0.95, "Share of the embeddings' numbers that a step drops."),
    number<&C::model, &M::residual_dropout>("model", "residual_dropout", 0, 0.95, "Share of what a part of a block adds that a step drops."),
    number<&C::model, &M::attention_dropout>("model", "attention_dropout", 0, 0.95, "Share of the attention weights that a step drops."),
    number<&C::model, &M::label_smoothing>("model", "label_smoothing", 0, 0.9, "Share of the target that is spread over the vocabulary."),
    number<&C::model, &M::z_loss>("model", "z_loss", 0, 1, "Coefficient of log(sum of exp(logits)) squared."),
    number<&C::model, &M::initializer_std>("model", "initializer_std", 0, 10, "Standard deviation of the first weights."),
    choice<&C::model, &M::recompute>("model", "recompute", "none|cheap|full", "What is computed again backward to save memory; changes no bit."),

    text<&C::data, &D::files>("data", "files", "Files to train on: text, JSON lines (.jsonl), token ids (.npy, .bin).", OnResume::kFree),
    text<&C::data, &D::validation_files>("data", "validation_files", "Files to measure on; without them, the end of data.files.", OnResume::kFree),
    text<&C::data, &D::task>("data", "task", "A synthetic task instead of files."),
    number<&C::data, &D::task_length>("data", "task_length", 0, kMillion, "How long or hard a question of the task is; 0: the usual."),
    choice<&C::data, &D::format>("data", "format", "auto|text|jsonl|tokens", "Of the files; auto: by their endings, text for what is unknown."),
    choice<&C::data, &D::token_type>("data", "token_type", "uint16|int32", "Of token files that are nothing but ids (.bin)."),
    text<&C::data, &D::field>("data", "field", "The member of a JSON line that holds its text."),
    text<&C::data, &D::tokenizer>("data", "tokenizer", "The tokenizer.json that makes ids of texts.", OnResume::kFree),
    choice<&C::data, &D::unit>("data", "unit", "file|line", "What one document of a text file is."),
    text<&C::data, &D::prefix>("data", "prefix", "Stands before each line or record; may name special tokens."),
    text<&C::data, &D::suffix>("data", "suffix", "Stands behind each line or record; may name special tokens."),
    choice<&C::data, &D::documents>("data", "documents", "none|mask|mask_and_restart",
                                    "Whether tokens see their own document alone, and whether positions begin anew in each."),
    number<&C::data, &D::validation_fraction>("data", "validation_fraction", 0, 0.9, "Share at the end of data.files that is measured on, not trained on."),
    choice<&C::data, &D::objective>("data", "objective", "next_token|masked_token|class", "What is predicted: tokens, or the class that each JSON line names."),
    number<&C::data, &D::mask_rate>("data", "mask_rate", 0.01, 0.9, "Share of tokens that are to be guessed (masked_token): 80 % masked, 10 % random, 10 % as they are."),
    text<&C::data, &D::label>("data", "label", "The member of a JSON line that holds its class, a text or a whole number (class)."),
    text<&C::data, &D::mask_token>("data", "mask_token", "The token that stands for what is to be guessed; empty: one id behind the vocabulary."),

    choice<&C::optimizer, &O::kind>("optimizer", "kind", "adamw|sgd", "AdamW, or gradient descent with momentum."),
    number<&C::optimizer, &O::learning_rate>("optimizer", "learning_rate", 0, 100, "At the top of the schedule."),
    number<&C::optimizer, &O::beta1>("optimizer", "beta1", 0, 0.999999, "Decay of AdamW's first moment."),
    number<&C::optimizer, &O::beta2>("optimizer", "beta2", 0, 0.999999, "Decay of AdamW's second moment."),
    number<&C::optimizer, &O::epsilon>("optimizer", "epsilon", 1e-16, 1, "Added to the root of AdamW's second moment."),
    number<&C::optimizer, &O::momentum>("optimizer", "momentum", 0, 0.999999, "Of gradient descent."),
    number<&C::optimizer, &O::weight_decay>("optimizer", "weight_decay", 0, 10, "Decoupled, of matrices and embeddings; biases and gains have none."),
    number<&C::optimizer, &O::clip_norm>("optimizer", "clip_norm", 0, kBillion, "Longest gradient, over all parameters together; 0: any."),
    number<&C::optimizer, &O::average_decay>("optimizer", "average_decay", 0, 0.999999,
                                             "Decay of a moving average of the weights, which is then what is measured and saved; 0: none."),
    number<&C::optimizer, &O::outlier_deviations>("optimizer", "outlier_deviations", 0, 1000,
                                                  "A step whose loss or gradient norm is this many deviations above the last 128 is left out; 0: none."),

    choice<&C::schedule, &S::kind>("schedule", "kind", "constant|linear|cosine|inverse_sqrt|warmup_stable_decay", "The learning rate behind the warm-up."),
    number<&C::schedule, &S::warmup_steps>("schedule", "warmup_steps", 0, kBillion, "Steps in which the learning rate rises from 0."),
    number<&C::schedule, &S::final_fraction>("schedule", "final_fraction", 0, 1, "Of the learning rate, at the end of linear, cosine and warmup_stable_decay."),
    number<&C::schedule, &S::decay_fraction>("schedule", "decay_fraction", 0, 1, "Of all steps, in which warmup_stable_decay falls."),

    text<&C::run, &R::init>("run", "init", "A model file or directory that the weights begin as, which then decides the shape; empty: drawn from the seed."),
    number<&C::run, &R::seed>("run", "seed", 0, 0x1p64, "Decides first weights, order of the data and dropout."),
    number<&C::run, &R::steps>("run", "steps", 0, 1e12, "Steps of the optimiser."),
    number<&C::run, &R::batch>("run", "batch", 1, kMillion, "Sequences of a step."),
    number<&C::run, &R::micro_batch>("run", "micro_batch", 0, kMillion, "Sequences at once, which decides the memory; 0: all of a step."),
    number<&C::run, &R::sequence>("run", "sequence", 1, kBillion, "Tokens of a sequence; a task has its own."),
    choice<&C::run, &R::precision>("run", "precision", "f32|bf16", "Of what enters matrix products; sums, weights and attention are f32 always."),
    number<&C::run, &R::evaluate_every>("run", "evaluate_every", 0, 1e12, "Steps from one measurement of the whole validation split to the next; 0: at the end alone."),
    number<&C::run, &R::save_every>("run", "save_every", 0, 1e12, "Steps from one checkpoint to the next; 0: at the end alone.", OnResume::kFree),
    choice<&C::run, &R::save_as>("run", "save_as", "f32|bf16", "Type of the weights in model.safetensors; a run goes on from f32 always.", OnResume::kFree),
    number<&C::run, &R::log_every>("run", "log_every", 1, 1e12, "Steps from one line of the log to the next.", OnResume::kFree),
    number<&C::run, &R::keep>("run", "keep", 1, 1000, "Checkpoints that are kept, besides the best.", OnResume::kFree),
    number<&C::run, &R::patience>("run", "patience", 0, kMillion, "Evaluations without a better loss before the run ends; 0: any."),
    number<&C::run, &R::min_improvement>("run", "min_improvement", 0, 100, "Nats by which a loss must fall to be better."),
};

// Letters that have to be changed, added or taken away to make one word of the other.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({changed, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row[b.size()];
}

// Whole numbers without an exponent: 1000000000, not 1e+09.
std::string number_text(double value) {
  return value == static_cast<double>(static_cast<int64_t>(value)) ? fmt::format("{}", static_cast<int64_t>(value)) : fmt::format("{}", value);
}

}  // namespace

std::span<const Field> fields() { return kFields; }

std::vector<std::string_view> words(const Field& field) {
  std::vector<std::string_view> list;
  std::string_view rest = field.choices;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('|'), rest.size());
    list.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return list;
}

std::string range_text(const Field& field) {
  const Value value = field.get(TrainConfig());
  if (std::holds_alternative<Choice>(value)) return fmt::format("{}", fmt::join(words(field), ", "));
  if (std::holds_alternative<std::string>(value)) return "a text";
  if (std::holds_alternative<std::vector<std::string>>(value)) return "a list of texts";
  if (field.max == 0x1p64) return "0 to 18446744073709551615";
  return fmt::format("{} to {}", number_text(field.min), number_text(field.max));
}

std::string value_text(const Field& field, const Value& value) {
  return std::visit(
      [&](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::vector<std::string>>) return fmt::format("{}", fmt::join(v, ","));
        else if constexpr (std::is_same_v<T, Choice>) return std::string(words(field)[v.index]);
        else return fmt::format("{}", v);
      },
      value);
}

std::string meant(std::string_view name) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, name.size() / 4) + 1;
  for (const Field& field : kFields) {
    // The section is often what is forgotten or mistaken, so the last part alone counts as well.
    const std::string full = field.full_name();
    const size_t dot = name.rfind('.');
    const std::string_view last = dot == std::string_view::npos ? name : name.substr(dot + 1);
    const size_t d = std::min(distance(name, full), distance(last, field.name) + (name == full ? 0 : 1));
    if (d < best_distance) best_distance = d, best = full;
  }
  return best.empty() ? "; 'regard train --print-config' lists them all" : fmt::format("; did you mean {}?", best);
}

}  // namespace regard::train_config
