#include "eval_baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "input.h"
#include "regard/ngram.h"
#include "regard/tokenizer_training.h"

namespace regard::cli {

std::vector<Option> baseline_options() {
  return {
      {.name = "baseline", .type = Type::kChoice, .value = "NAME",
       .help = "Also measures how well counting predicts the text: n-grams with interpolated Witten-Bell smoothing. No model is needed then.",
       .fallback = "none", .choices = "none|ngram", .section = Section::kCommon},
      {.name = "train", .type = Type::kInputFile, .value = "FILE", .help = "The text that the n-grams are counted in.",
       .section = Section::kCommon},
      {.name = "order", .type = Type::kInteger, .value = "N", .help = "Tokens of the longest n-gram.", .unit = "tokens", .fallback = "6",
       .min = 1, .max = double{kMaxNgramOrder}},
      {.name = "tokenizer", .type = Type::kInputFile, .value = "FILE",
       .help = "Whose tokens the n-grams are of; without it and without a model, characters."},
  };
}

bool wants_baseline(const Arguments& arguments) {
  const bool wanted = arguments.text("baseline") == "ngram";
  if (wanted && !arguments.has("train")) throw UsageError("--baseline ngram needs --train, the text to count in");
  if (!wanted) {
    if (arguments.has("train") || arguments.has("tokenizer")) throw UsageError("--train and --tokenizer belong to --baseline ngram");
    if (!arguments.has("model")) throw UsageError("-m,--model is missing; give it, set REGARD_MODEL, or ask for --baseline ngram or --run alone");
  }
  if (arguments.has("model") && arguments.has("tokenizer")) {
    throw UsageError("--tokenizer is for a baseline without a model; beside a model its own tokens are counted");
  }
  if (wanted && arguments.text("train") == "-" && !arguments.has("file")) throw UsageError("--train - and the text are both standard input; give --file for the text");
  return wanted;
}

Baseline measure_baseline(Context& context, const Tokenizer* tokenizer, const std::string& text) {
  const Arguments& arguments = context.arguments;
  const std::string train = read_text(arguments.text("train"));
  std::optional<Tokenizer> own;
  if (tokenizer == nullptr) {
    if (arguments.has("tokenizer")) {
      own = Tokenizer::from_file(arguments.text("tokenizer"));
    } else {
      own = train_tokenizer(std::vector{train, text}, {}).tokenizer;
    }
    tokenizer = &*own;
  }
  NgramOptions options;
  options.order = arguments.integer("order");
  options.vocab_size = tokenizer->vocab_size();
  options.stop = &stop_token();
  options.progress = [&](uint64_t done, uint64_t total) { context.messages.progress("counting n-grams", done, total); };
  const NgramModel model = NgramModel::count(tokenizer->encode(train), options);
  context.messages.end_progress();

  const std::vector<int32_t> ids = tokenizer->encode(text);
  if (ids.empty()) throw UsageError("the text is empty; there is nothing to predict");
  Baseline baseline;
  baseline.tokens = static_cast<int64_t>(ids.size());
  // Every byte of UTF-8 but those that go on with a character.
  baseline.characters = std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0u) != 0x80u; });
  baseline.vocab_size = options.vocab_size;
  baseline.nats = model.nats(ids, options.stop);
  return baseline;
}

std::string baseline_text(const Baseline& baseline) {
  std::string out = fmt::format("{:8}  {:>14}  {:>13}\n", "", "nats per token", "per character");
  for (size_t n = 0; n < baseline.nats.size(); ++n) {
    const std::string name = n == 0 ? "uniform" : fmt::format("{}-gram", n);
    const double nats = baseline.nats[n];
    out += fmt::format("{:8}  {:14.4f}  {:13.4f}\n", name, nats / static_cast<double>(baseline.tokens),
                       nats / static_cast<double>(std::max<int64_t>(baseline.characters, 1)));
  }
  return out;
}

void write_baseline(JsonWriter& json, const Baseline& baseline) {
  json.key("baseline").begin_object().member("kind", "ngram").member("tokens", baseline.tokens).member("characters", baseline.characters);
  json.member("vocab_size", baseline.vocab_size).key("orders").begin_array();
  for (size_t n = 0; n < baseline.nats.size(); ++n) {
    const double each = baseline.nats[n] / static_cast<double>(baseline.tokens);
    json.begin_object().member("order", uint64_t{n}).member("nats_per_token", each).key("nats_per_character");
    if (baseline.characters > 0) json.value(baseline.nats[n] / static_cast<double>(baseline.characters));
    else json.null();
    json.end();
  }
  json.end().end();
}

}  // namespace regard::cli
