#include "generate_beams.h"

#include <fmt/format.h>

#include "model_options.h"

namespace regard::cli {
namespace {

void write_text(JsonWriter& json, const BeamText& text) {
  json.member("text", text.text).key("ids").begin_array();
  for (const int32_t id : text.ids) json.value(id);
  json.end().member("finish", finish_name(text.finish));
}

void write_json(Context& context, const Model& model, std::span<const BeamResult> results) {
  JsonWriter json;
  json.begin_object().member("schema", 1).member("model", model.info().name).key("results").begin_array();
  for (const BeamResult& result : results) {
    json.begin_object();
    if (!result.texts.empty()) write_text(json, result.texts.front());  // as without a search: one text, the best
    json.member("prompt_tokens", result.prompt_tokens).member("prefill_seconds", result.prefill_seconds).member("decode_seconds", result.decode_seconds);
    json.member("steps", result.steps).key("texts").begin_array();
    for (const BeamText& text : result.texts) {
      json.begin_object();
      write_text(json, text);
      json.member("score", text.score).member("logprob", text.logprob).end();
    }
    json.end().end();
  }
  context.out.write(json.end().end().finish() + "\n");
}

}  // namespace

std::vector<Option> beam_options() {
  return {
      {.name = "beams", .type = Type::kInteger, .value = "N",
       .help = "Searches for likely texts and follows N at once, instead of taking one token after the other; printed at the end.", .min = 1,
       .max = 1024},
      {.name = "return", .type = Type::kInteger, .value = "N", .help = "Best texts of the search to print; without it, 1.", .min = 1, .max = 1024},
      {.name = "length-penalty", .type = Type::kNumber, .value = "X",
       .help = "The score of a text of n tokens is its log-probability / n^X: above 0 longer texts gain; without it, 1.", .min = -24, .max = 24},
      {.name = "early-stopping", .type = Type::kChoice, .value = "WHEN",
       .help = "When N texts have ended: yes ends the search, no (without it) unless the likeliest live text is better as it is, never unless one can "
               "still become better.",
       .choices = "no|yes|never"},
  };
}

std::optional<BeamOptions> read_beam_options(const Arguments& arguments) {
  for (const char* name : {"return", "length-penalty", "early-stopping"})
    if (arguments.has(name) && !arguments.has("beams")) throw UsageError(fmt::format("--{} is about a beam search; give --beams, too", name));
  if (!arguments.has("beams")) return {};
  if (arguments.has("top-logprobs")) throw UsageError("--top-logprobs is not there with --beams; --json has the score of each text");
  if (arguments.number("temperature") != 0) throw UsageError("a beam search draws nothing; leave out --temperature or --beams");
  BeamOptions options;
  options.beams = arguments.integer("beams");
  if (arguments.has("return")) options.num_results = arguments.integer("return");
  if (options.num_results > options.beams) throw UsageError(fmt::format("--return {} texts of --beams {}; give at most as many", options.num_results, options.beams));
  if (arguments.has("length-penalty")) options.length_penalty = arguments.number("length-penalty");
  const std::string& when = arguments.text("early-stopping");
  using EarlyStopping = BeamOptions::EarlyStopping;
  options.early_stopping = when == "yes" ? EarlyStopping::kYes : when == "never" ? EarlyStopping::kNever : EarlyStopping::kNo;
  return options;
}

void write_beams(Context& context, const Model& model, std::span<const BeamResult> results, const BeamOptions& beams, std::span<const std::string> prompts) {
  if (context.arguments.flag("json")) {
    write_json(context, model, results);
  } else {
    for (size_t i = 0; i < results.size(); ++i)
      for (size_t k = 0; k < results[i].texts.size(); ++k) {
        const BeamText& text = results[i].texts[k];
        if (i + k > 0) context.out.write("\n");
        if (beams.num_results > 1) context.out.print("[{}.{}] score {:.4f}\n", i + 1, k + 1, text.score);
        else if (results.size() > 1) context.out.print("[{}]\n", i + 1);
        context.out.print("{}{}\n", context.arguments.flag("echo") ? prompts[i] : "", text_of(text.ids, text.text, model));
      }
  }
  context.out.flush();
}

}  // namespace regard::cli
