#include "model_options.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "input.h"

namespace regard::cli {

std::vector<Option> model_options() {
  return {
      {.name = "model", .letter = 'm', .type = Type::kInputFile, .value = "FILE",
       .help = "A GGUF file (the first part of a split one), or a directory with config.json and safetensors.",
       .presence = Presence::kRequired, .section = Section::kCommon},
      {.name = "context", .type = Type::kInteger, .value = "N",
       .help = "Most tokens of one text, prompt included; without it, what the model was trained for.", .unit = "tokens", .min = 1,
       .max = 16777216},
      {.name = "cache-type", .type = Type::kChoice, .value = "TYPE",
       .help = "What keys and values are kept in; arithmetic is in f32 with each. int8 has a scale for each token and head.",
       .fallback = "f32", .choices = "f32|f16|bf16|int8"},
      {.name = "mmap", .help = "Maps the file instead of reading it. If it shrinks meanwhile, the program dies."},
  };
}

Option chunk_option() {
  return {.name = "chunk", .type = Type::kInteger, .value = "N",
          .help = "Tokens of a prompt that are computed together. Changes no bit of a result.", .unit = "tokens", .fallback = "512",
          .min = 1, .max = 65536};
}

std::vector<Option> sampling_options() {
  return {
      {.name = "max-tokens", .letter = 'n', .type = Type::kInteger, .value = "N", .help = "Most tokens to write.", .unit = "tokens",
       .fallback = "128", .min = 0, .max = 16777216, .section = Section::kCommon},
      {.name = "min-tokens", .type = Type::kInteger, .value = "N", .help = "Bans the tokens that end a text until there are so many.",
       .unit = "tokens", .fallback = "0", .min = 0, .max = 16777216},
      {.name = "temperature", .type = Type::kNumber, .value = "T",
       .help = "Divides the logits; 0 takes the most likely token each time.", .fallback = "0", .min = 0, .max = 1000,
       .section = Section::kCommon},
      {.name = "top-k", .type = Type::kInteger, .value = "K", .help = "Keeps the K most likely tokens; 0 keeps all.", .fallback = "0",
       .min = 0, .max = 1e9},
      {.name = "top-p", .type = Type::kNumber, .value = "P",
       .help = "Keeps the most likely tokens whose probabilities sum up to P.", .fallback = "1", .min = 1e-9, .max = 1},
      {.name = "min-p", .type = Type::kNumber, .value = "P",
       .help = "Keeps tokens with at least P times the largest probability.", .fallback = "0", .min = 0, .max = 1},
      {.name = "typical-p", .type = Type::kNumber, .value = "P",
       .help = "Keeps the tokens of typical information, up to this mass.", .fallback = "1", .min = 1e-9, .max = 1},
      {.name = "repetition-penalty", .type = Type::kNumber, .value = "X",
       .help = "Divides (or, below zero, multiplies) the logits of tokens that have occurred, prompt included; 1 is off.",
       .fallback = "1", .min = 1e-3, .max = 1000},
      {.name = "frequency-penalty", .type = Type::kNumber, .value = "X", .help = "Subtracted for each time a token was written.",
       .fallback = "0", .min = -1000, .max = 1000},
      {.name = "presence-penalty", .type = Type::kNumber, .value = "X", .help = "Subtracted once when a token was written.",
       .fallback = "0", .min = -1000, .max = 1000},
      {.name = "no-repeat-ngram", .type = Type::kInteger, .value = "N", .help = "No N tokens in a row occur twice; 0 is off.",
       .fallback = "0", .min = 0, .max = 1e6},
      {.name = "logit-bias", .type = Type::kText, .value = "ID=X", .help = "Adds X to the logit of a token id; -inf bans it.",
       .repeat = Repeat::kMany},
      {.name = "seed", .type = Type::kNatural, .value = "N",
       .help = "The same seed gives the same text, on any number of threads and in any batch.", .fallback = "0"},
      {.name = "stop", .type = Type::kText, .value = "TEXT", .help = "Ends before this text; it is not printed.", .repeat = Repeat::kMany},
      {.name = "stop-id", .type = Type::kInteger, .value = "ID", .help = "Ends at this token id.", .min = 0, .max = 2147483647,
       .repeat = Repeat::kMany},
      {.name = "ignore-eos", .help = "Goes on when the model would end the text."},
      chunk_option(),
  };
}

Model load_model(Context& context) {
  const Arguments& arguments = context.arguments;
  ModelOptions options;
  if (arguments.has("context")) options.context = arguments.integer("context");
  const std::string& type = arguments.text("cache-type");
  options.cache_type = type == "f16" ? DType::kF16 : type == "bf16" ? DType::kBF16 : type == "int8" ? DType::kI8 : DType::kF32;
  options.access = arguments.flag("mmap") ? FileAccess::kMap : FileAccess::kRead;
  options.stop = &stop_token();
  options.progress = [&context](uint64_t done, uint64_t total) { context.messages.progress("loading", done, total); };
  Model model = Model::load(arguments.text("model"), options);
  context.messages.end_progress();
  return model;
}

Tokenizer load_tokenizer(const Arguments& arguments) {
  std::filesystem::path path = arguments.text("model");
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) path /= "tokenizer.json";
  return Tokenizer::from_file(path);
}

GenerateOptions read_generate_options(const Arguments& arguments) {
  GenerateOptions options;
  SamplingOptions& sampling = options.sampling;
  sampling.temperature = static_cast<float>(arguments.number("temperature"));
  sampling.top_k = arguments.integer("top-k");
  sampling.top_p = static_cast<float>(arguments.number("top-p"));
  sampling.min_p = static_cast<float>(arguments.number("min-p"));
  sampling.typical_p = static_cast<float>(arguments.number("typical-p"));
  sampling.repetition_penalty = static_cast<float>(arguments.number("repetition-penalty"));
  sampling.frequency_penalty = static_cast<float>(arguments.number("frequency-penalty"));
  sampling.presence_penalty = static_cast<float>(arguments.number("presence-penalty"));
  sampling.no_repeat_ngram = arguments.integer("no-repeat-ngram");
  sampling.seed = arguments.natural("seed");
  for (const std::string& text : arguments.list("logit-bias")) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) throw UsageError(fmt::format("--logit-bias is '{}'; give ID=X", text));
    const std::vector<int32_t> id = parse_ids(text.substr(0, equals), "--logit-bias");
    if (id.size() != 1) throw UsageError(fmt::format("--logit-bias is '{}'; give ID=X", text));
    const std::string value = text.substr(equals + 1);
    const float bias = value == "-inf" ? -std::numeric_limits<float>::infinity() : static_cast<float>(parse_number(value, "--logit-bias"));
    sampling.logit_bias.emplace_back(id[0], bias);
  }
  options.max_tokens = arguments.integer("max-tokens");
  options.min_tokens = arguments.integer("min-tokens");
  options.stop_strings = arguments.list("stop");
  for (const std::string& id : arguments.list("stop-id")) options.stop_ids.push_back(parse_ids(id, "--stop-id").front());
  options.end_of_text = arguments.flag("ignore-eos") ? GenerateOptions::EndOfText::kIgnore : GenerateOptions::EndOfText::kStop;
  options.prefill_chunk = arguments.integer("chunk");
  options.stop = &stop_token();
  return options;
}

std::string_view finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kCancelled: return "cancelled";
  }
  return "length";
}

std::string text_of(std::span<const int32_t> ids, const std::string& text, const Model& model) {
  return model.info().has_tokenizer ? text : fmt::format("{}", fmt::join(ids, " "));
}

std::string speed_text(std::span<const Generation> generations) {
  // Texts of one call run side by side, so the longest time is the time of all.
  double prompt = 0, text = 0, steps = 0, prefill_seconds = 0, decode_seconds = 0;
  std::vector<std::string_view> ends;
  for (const Generation& generation : generations) {
    const auto ids = static_cast<double>(generation.ids.size());
    prompt += static_cast<double>(generation.prompt_tokens);
    text += ids;
    steps += std::max(0.0, ids - 1);  // the first token comes out of the prompt's last step
    prefill_seconds = std::max(prefill_seconds, generation.prefill_seconds);
    decode_seconds = std::max(decode_seconds, generation.decode_seconds);
    ends.push_back(finish_name(generation.finish));
  }
  const auto part = [](std::string_view what, double tokens, double steps_made, double seconds) {
    return fmt::format("{} {:.0f} token{}, {:.1f} tokens/s", what, tokens, tokens == 1 ? "" : "s", seconds > 0 ? steps_made / seconds : 0.0);
  };
  return fmt::format("{}; {}; {}", part("prompt", prompt, prompt, prefill_seconds), part("text", text, steps, decode_seconds),
                     fmt::join(ends, ", "));
}

void write_generation(JsonWriter& json, const Generation& generation, const Model& model) {
  json.member("text", generation.text).key("ids").begin_array();
  for (const int32_t id : generation.ids) json.value(id);
  json.end().member("finish", finish_name(generation.finish)).member("prompt_tokens", generation.prompt_tokens);
  json.member("prefill_seconds", generation.prefill_seconds).member("decode_seconds", generation.decode_seconds);
  if (generation.logprobs.empty()) return;
  const auto token = [&](int32_t id) { return model.info().has_tokenizer ? model.tokenizer().token_bytes(id) : std::string(); };
  json.key("logprobs").begin_array();
  for (size_t i = 0; i < generation.logprobs.size(); ++i) {
    json.begin_object().member("id", generation.ids[i]).member("token", token(generation.ids[i]));
    json.member("logprob", generation.logprobs[i]).key("top").begin_array();
    if (i < generation.top.size()) {
      for (const TokenLogprob& top : generation.top[i]) {
        json.begin_object().member("id", top.id).member("token", token(top.id)).member("logprob", top.logprob).end();
      }
    }
    json.end().end();
  }
  json.end();
}

}  // namespace regard::cli
