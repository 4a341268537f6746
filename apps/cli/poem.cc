// `regard poem`: acrostic poems in regular verse.
#include <fmt/format.h>

#include <algorithm>

#include "look_options.h"
#include "model_options.h"
#include "regard/png.h"
#include "regard/poem.h"

namespace regard::cli {
namespace {

PoemOptions read_poem_options(const Arguments& arguments, int64_t poems) {
  PoemOptions options;
  options.form = arguments.text("form") == "5" ? VerseForm::kFive : VerseForm::kSeven;
  options.sampling.temperature = static_cast<float>(arguments.number("temperature"));
  options.sampling.top_k = arguments.integer("top-k");
  options.sampling.top_p = static_cast<float>(arguments.number("top-p"));
  options.sampling.min_p = static_cast<float>(arguments.number("min-p"));
  options.sampling.seed = arguments.natural("seed");
  options.repetition_cost = arguments.number("repetition-cost");
  options.stop = &stop_token();
  // The most likely characters make one poem; else there are as many candidates as poems at least.
  const bool greedy = options.sampling.temperature == 0;
  options.candidates = arguments.has("candidates") ? arguments.integer("candidates") : greedy ? 1 : std::max<int64_t>(8, poems);
  if (poems > options.candidates)
    throw UsageError(fmt::format("-n asks for {} poems out of {} candidate{}; raise --candidates{}", poems, options.candidates, options.candidates == 1 ? "" : "s",
                                 greedy ? " and --temperature (0 makes one poem)" : ""));
  return options;
}

// A verse to a line, so that the acrostic stands at its beginning.
std::string lines_of(const Poem& poem) { return fmt::format("{}\n", fmt::join(poem.verses, "\n")); }

void write_poem(JsonWriter& json, const Poem& poem) {
  json.begin_object().member("text", poem.text).key("verses").begin_array();
  for (const std::string& verse : poem.verses) json.value(verse);
  json.end().key("ids").begin_array();
  for (const int32_t id : poem.ids) json.value(id);
  json.end().member("candidate", poem.candidate).member("mean_logprob", poem.mean_logprob).member("repetitions", poem.repetitions);
  json.member("score", poem.score).member("complete", poem.complete).end();
}

int run_poem(Context& context) {
  const Arguments& arguments = context.arguments;
  const LookRequest look = read_look_options(arguments);
  const int64_t wanted = arguments.integer("poems");
  const PoemOptions options = read_poem_options(arguments, wanted);
  const bool json_wanted = arguments.flag("json");
  const Model model = load_model(context);
  check_look(model, look);

  // A single candidate needs no ranking, and is shown while it is written.
  const bool stream = options.candidates == 1 && !json_wanted;
  OnPoemText on_text;
  bool line_open = false;
  if (stream) {
    on_text = [&](std::string_view text) {
      line_open = text != "\uFF0C" && text != "\u3002";
      context.out.write(text);
      if (!line_open) context.out.write("\n");
      context.out.flush();
    };
  }
  std::vector<Poem> poems = write_acrostic(model, arguments.text("acrostic"), options, on_text);
  poems.resize(static_cast<size_t>(wanted));
  HeatMap map;
  const bool looked = look.wanted && poems.front().complete;
  if (looked) {
    std::vector<int32_t> text = poems.front().start;
    text.insert(text.end(), poems.front().ids.begin(), poems.front().ids.end());
    map = look_at(model, text, look);
  }

  if (json_wanted) {
    JsonWriter json;
    json.begin_object().member("schema", 1).member("model", model.info().name).member("seed", options.sampling.seed);
    json.member("acrostic", arguments.text("acrostic")).member("form", static_cast<int>(options.form)).key("poems").begin_array();
    for (const Poem& poem : poems) write_poem(json, poem);
    json.end();
    if (looked) write_look(json, map);
    context.out.write(json.end().finish() + "\n");
  } else if (stream) {
    if (line_open) context.out.write("\n");
  } else if (poems.front().complete) {  // what was stopped halfway has no rank
    for (size_t i = 0; i < poems.size(); ++i) {
      if (poems.size() > 1) context.out.print("{}[{}]\n", i == 0 ? "" : "\n", i + 1);
      context.out.write(lines_of(poems[i]));
    }
  }
  if (looked && look.in_terminal && !json_wanted) context.out.write("\n" + heat_map_text(map));
  context.out.flush();
  if (looked && !look.picture.empty()) save_png(look.picture, heat_map_image(map));
  for (const Poem& poem : poems)
    if (poem.complete && !json_wanted)
      context.messages.note(fmt::format("candidate {} of {}: {:.3f} nats a character, {} repeated, score {:.3f}", poem.candidate + 1, options.candidates,
                                        -poem.mean_logprob, poem.repetitions, poem.score));
  return 0;
}

}  // namespace

Command poem_command() {
  return {
      .name = "poem",
      .summary = "write an acrostic poem in Chinese verse",
      .description = "Writes a poem whose verses begin with the given characters (cang tou shi), with any model whose tokens are characters. The form is kept by masking logits: "
                     "each verse has 5 or 7 Han characters and ends in the full-width comma or the full stop by turns. Several candidates are written side by side and the best "
                     "ones printed, a verse to a line. The score is the mean log-probability of the characters that were free, less a cost for each of them that stood in the poem before "
                     "(a doubled one, as in 'qing qing', is let pass). A single candidate is printed as it is written.",
      .examples = {{"regard poem -m poet/latest --acrostic \u6625\u590F\u79CB\u51AC", "Four verses of seven characters, the best of eight poems."},
                   {"regard poem -m poet/latest --acrostic \u660E\u6708 --form 5 -n 3 --candidates 40 --seed 7", "The best three of forty, five characters to a verse."},
                   {"regard poem -m poet/latest --acrostic \u6C5F\u5C71 --look --look-png look.png", "Also shows where the model looked."}},
      .positionals = {},
      .options = join({model_options(),
                       {
                           {.name = "acrostic", .letter = 'a', .type = Type::kText, .value = "TEXT", .help = "The characters that begin the verses.",
                            .presence = Presence::kRequired, .section = Section::kCommon},
                           {.name = "form", .type = Type::kChoice, .value = "N", .help = "Characters of a verse.", .fallback = "7", .choices = "5|7",
                            .section = Section::kCommon},
                           {.name = "poems", .letter = 'n', .type = Type::kInteger, .value = "K", .help = "How many poems to print, the best one first.",
                            .fallback = "1", .min = 1, .max = 1024, .section = Section::kCommon},
                           {.name = "candidates", .type = Type::kInteger, .value = "N",
                            .help = "How many poems to choose from; without it 8, or as many as are printed. 1 is printed as it is written.", .min = 1, .max = 1024,
                            .section = Section::kCommon},
                           {.name = "seed", .type = Type::kNatural, .value = "N", .help = "The same seed gives the same poems, on any number of threads.",
                            .fallback = "0", .section = Section::kCommon},
                           {.name = "temperature", .type = Type::kNumber, .value = "T",
                            .help = "Divides the logits; 0 takes the most likely character each time, and makes one poem.", .fallback = "0.8", .min = 0, .max = 1000,
                            .section = Section::kCommon},
                           {.name = "top-k", .type = Type::kInteger, .value = "K", .help = "Keeps the K most likely characters; 0 keeps all.", .fallback = "0",
                            .min = 0, .max = 1e9},
                           {.name = "top-p", .type = Type::kNumber, .value = "P", .help = "Keeps the most likely characters whose probabilities sum up to P.",
                            .fallback = "0.95", .min = 1e-9, .max = 1},
                           {.name = "min-p", .type = Type::kNumber, .value = "P", .help = "Keeps characters with at least P times the largest probability.",
                            .fallback = "0", .min = 0, .max = 1},
                           {.name = "repetition-cost", .type = Type::kNumber, .value = "X", .help = "What a repeated character takes from the score.", .unit = "nats",
                            .fallback = "1", .min = 0, .max = 1000},
                           json_option(),
                       },
                       look_options("Shows which characters the model read for each one that it wrote, as a map of weights under the best poem; with --json as numbers.")}),
      .run = run_poem,
  };
}

}  // namespace regard::cli
