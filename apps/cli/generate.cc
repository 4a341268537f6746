// `regard generate`: continues prompts.
#include <fmt/format.h>

#include "generate_beams.h"
#include "input.h"
#include "look_options.h"
#include "model_options.h"
#include "regard/error.h"
#include "regard/png.h"

namespace regard::cli {
namespace {

// The prompts as token ids: from --ids, or from --prompt, --file or standard input.
std::vector<std::vector<int32_t>> read_prompts(const Arguments& arguments, const Model& model, std::vector<std::string>& texts) {
  // What is typed wins over the environment; two that are typed contradict each other.
  const auto typed = [&](const char* name) { return arguments.source(name) == Source::kCommandLine; };
  if (int{typed("ids")} + int{typed("prompt")} + int{typed("file")} > 1) throw UsageError("give one of --prompt, --file and --ids");
  const bool any_typed = typed("ids") || typed("prompt") || typed("file");
  const auto counts = [&](const char* name) { return any_typed ? typed(name) : arguments.has(name); };
  if (counts("ids")) {
    std::vector<std::vector<int32_t>> prompts;
    for (const std::string& ids : arguments.list("ids")) prompts.push_back(parse_ids(ids, "--ids"));
    for (const auto& ids : prompts) texts.push_back(model.info().has_tokenizer ? model.tokenizer().decode(ids, {.special = SpecialText::kShow}) : "");
    return prompts;
  }
  if (counts("prompt")) texts = arguments.list("prompt");
  if (texts.empty()) texts = {read_text_input("", false, counts("file") ? arguments.text("file") : "", "--prompt")};
  EncodeOptions options;
  options.special = arguments.flag("special") ? SpecialTokens::kParse : SpecialTokens::kAsText;
  options.add = arguments.flag("no-bos") ? AddSpecial::kNone : AddSpecial::kAsModel;
  std::vector<std::vector<int32_t>> prompts;
  for (const std::string& text : texts) {
    prompts.push_back(model.tokenizer().encode(text, options));
    if (prompts.back().empty()) throw UsageError("a prompt is empty, and this model has no token that begins a text");
  }
  return prompts;
}

// An encoder writes nothing, and says so before anything is asked of it.
void check_writes(const Model& model, const LookRequest& look) {
  const std::string& architecture = model.info().architecture;
  if (architecture == "encoder") throw Error(Code::kUnsupported, "this model is an encoder, which writes no text; regard logits has what it says of each token");
  if (look.wanted && architecture != "decoder") throw UsageError("--look and --look-png show what a decoder reads, and this model is an encoder-decoder");
}

int run_generate(Context& context) {
  const Arguments& arguments = context.arguments;
  GenerateOptions options = read_generate_options(arguments);
  const bool json_wanted = arguments.flag("json");
  const LookRequest look = read_look_options(arguments);
  if (arguments.has("start-ids")) options.start_ids = parse_ids(arguments.text("start-ids"), "--start-ids");
  const std::optional<BeamOptions> beams = read_beam_options(arguments);
  if (beams && look.wanted) throw UsageError("--look shows one text, and a search follows several; leave out --look or --beams");
  if (arguments.has("top-logprobs")) options.top_logprobs = arguments.integer("top-logprobs");
  if (options.top_logprobs >= 0 && !json_wanted) throw UsageError("--top-logprobs is printed with --json only");

  const Model model = load_model(context);
  check_writes(model, look);
  check_look(model, look);
  std::vector<std::string> texts;
  const std::vector<std::vector<int32_t>> prompts = read_prompts(arguments, model, texts);
  if (look.wanted && prompts.size() > 1) throw UsageError(fmt::format("--look and --look-png show one text, and there are {} prompts; give one", prompts.size()));

  if (beams) {
    write_beams(context, model, beam_search(model, prompts, options, *beams), *beams, texts);
    return 0;
  }

  // One prompt is streamed as it is written; several would mix, and come one after the other at the end, numbered.
  const bool stream = prompts.size() == 1 && !json_wanted;
  if (stream && arguments.flag("echo")) context.out.write(texts[0]);
  OnToken on_token;
  if (stream) {
    context.out.flush();
    const bool as_ids = !model.info().has_tokenizer;  // a model without a tokenizer writes numbers
    on_token = [&context, as_ids](const TokenEvent& event) {
      context.out.write(as_ids ? fmt::format("{} ", event.id) : event.text);
      context.out.flush();
      return true;
    };
  }
  const std::vector<Generation> generations = generate(model, prompts, options, on_token);
  // The text with its prompt, unless it was stopped: who asked for an end does not want to wait for a map.
  HeatMap map;
  if (look.wanted && generations[0].finish != FinishReason::kCancelled) {
    std::vector<int32_t> text = prompts[0];
    text.insert(text.end(), generations[0].ids.begin(), generations[0].ids.end());
    map = look_at(model, text, look);
  }
  const bool looked = !map.rows.empty();
  const bool something_stands = !stream || !generations[0].ids.empty() || (arguments.flag("echo") && !texts[0].empty());

  if (json_wanted) {
    JsonWriter json;
    json.begin_object().member("schema", 1).member("model", model.info().name).member("seed", options.sampling.seed).key("results").begin_array();
    for (const Generation& generation : generations) {
      json.begin_object();
      write_generation(json, generation, model);
      json.end();
    }
    json.end();
    if (looked) write_look(json, map);
    context.out.write(json.end().finish() + "\n");
  } else if (stream) {
    if (something_stands || !looked) context.out.write("\n");
  } else {
    for (size_t i = 0; i < generations.size(); ++i) {
      context.out.print("{}[{}]\n{}{}\n", i == 0 ? "" : "\n", i + 1, arguments.flag("echo") ? texts[i] : "", text_of(generations[i].ids, generations[i].text, model));
    }
  }
  if (looked && look.in_terminal && !json_wanted) context.out.write((something_stands ? "\n" : "") + heat_map_text(map));
  context.out.flush();
  if (looked && !look.picture.empty()) save_png(look.picture, heat_map_image(map));
  if (!json_wanted) context.messages.note(speed_text(generations));
  return 0;
}

}  // namespace

Command generate_command() {
  return {
      .name = "generate",
      .summary = "continue a text",
      .description = "Continues a prompt with a model and prints the text token by token; an encoder-decoder reads the prompt and writes about it. The texts of several prompts follow each other under [1], [2] ... The first Ctrl-C stops at the next token and keeps "
                     "what was written; the second stops at once.",
      .examples = {{"regard generate -m model.gguf -p \"The sea\" -n 40", "Forty tokens, the most likely one each time."},
                   {"regard generate -m model.gguf -f story.txt --temperature 0.8 --top-p 0.95 --seed 7 --json",
                    "A sampled text with its token ids, for a script."},
                   {"regard generate -m model.gguf -p \"The sea\" -n 20 --look --look-png look.png", "Also shows where the model looked."},
                   {"regard generate -m model.gguf -p \"The sea\" --beams 4 --return 2", "The two likeliest texts of a search with four beams."}},
      .positionals = {},
      .options = join({model_options(),
                       {
                           {.name = "prompt", .letter = 'p', .type = Type::kText, .value = "TEXT",
                            .help = "The text to continue. Without it, --file or standard input.", .repeat = Repeat::kMany,
                            .section = Section::kCommon},
                           {.name = "file", .letter = 'f', .type = Type::kInputFile, .value = "FILE",
                            .help = "A file with the text to continue; - is standard input.", .section = Section::kCommon},
                           {.name = "ids", .type = Type::kText, .value = "IDS", .help = "The prompt as token ids: '1 2 3'.",
                            .repeat = Repeat::kMany},
                           {.name = "start-ids", .type = Type::kText, .value = "IDS",
                            .help = "What the texts of an encoder-decoder begin with, as token ids; without it, what its file says."},
                           {.name = "echo", .help = "Prints the prompt before the text."},
                           {.name = "special", .help = "Reads special tokens in the prompt, such as <|im_start|>."},
                           {.name = "no-bos", .help = "Does not add the tokens that the model wants around a text."},
                           {.name = "top-logprobs", .type = Type::kInteger, .value = "N",
                            .help = "Adds to --json the log-probability of each token and of the N most likely ones.", .min = 0,
                            .max = 1000},
                           json_option(),
                       },
                       beam_options(),
                       look_options("Shows which tokens the model read for each one of the text, prompt included, as a map of weights under it; with --json as numbers. Decoders only, one prompt."),
                       sampling_options()}),
      .run = run_generate,
  };
}

}  // namespace regard::cli
