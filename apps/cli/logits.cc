// `regard logits`: the numbers behind a text, for comparing them with another program's.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "input.h"
#include "model_options.h"
#include "regard/error.h"
#include "regard/npy.h"

namespace regard::cli {
namespace {

std::vector<int32_t> encode(const Arguments& arguments, const Model& model, std::string_view option) {
  return model.tokenizer().encode(arguments.text(option), {SpecialTokens::kAsText, arguments.flag("no-bos") ? AddSpecial::kNone : AddSpecial::kAsModel});
}

std::vector<std::vector<int32_t>> read_sequences(const Arguments& arguments, const Model& model) {
  const int sources = int{arguments.has("ids")} + int{arguments.has("prompt")} + int{arguments.has("batch")};
  if (sources != 1) throw UsageError("give one of --ids, --prompt and --batch");
  std::vector<std::vector<int32_t>> sequences;
  if (arguments.has("ids")) sequences.push_back(parse_ids(arguments.text("ids"), "--ids"));
  if (arguments.has("prompt")) {
    sequences.push_back(encode(arguments, model, "prompt"));
  }
  if (arguments.has("batch")) {
    for (const std::string& line : split(read_text(arguments.text("batch")), '\n')) {
      sequences.push_back(parse_ids(line, "a line of --batch"));
      if (sequences.back().empty()) sequences.pop_back();
    }
  }
  if (sequences.empty() || sequences.front().empty()) throw UsageError("there are no tokens");
  return sequences;
}

void refuse_source(const Arguments& arguments, const Model& model) {
  const std::string& architecture = model.info().architecture;
  for (const char* name : {"source", "source-ids"})
    if (arguments.has(name))
      throw UsageError(fmt::format("--{} is what an encoder-decoder reads; this model is {} {}", name, architecture == "encoder" ? "an" : "a", architecture));
}

std::vector<Sequence> make_sequences(const Arguments& arguments, const Model& model, size_t count) {
  std::vector<Sequence> sequences;
  if (model.info().architecture != "encoder_decoder") {
    refuse_source(arguments, model);
    for (size_t i = 0; i < count; ++i) sequences.emplace_back(model);
    return sequences;
  }
  const bool ids = arguments.has("source-ids");
  if (ids == arguments.has("source")) throw UsageError("this model is an encoder-decoder; give one of --source and --source-ids, what its encoder reads");
  const std::vector<int32_t> source = ids ? parse_ids(arguments.text("source-ids"), "--source-ids") : encode(arguments, model, "source");
  if (source.empty()) throw UsageError("the source has no tokens");
  sequences.emplace_back(model, source, &stop_token());
  while (sequences.size() < count) sequences.push_back(sequences.front().fork());
  return sequences;
}

// The rows of an encoder, which reads each text whole.
void encode_all(const Model& model, std::span<const std::vector<int32_t>> texts, const ForwardOptions& options, bool last_only, int64_t columns, float* out) {
  std::vector<float> rows;
  for (const std::vector<int32_t>& text : texts) {
    rows.resize(text.size() * static_cast<size_t>(columns));
    model.encode(text, options, rows.data());
    out = std::copy(last_only ? rows.end() - columns : rows.begin(), rows.end(), out);
  }
}

int run_logits(Context& context) {
  const Arguments& arguments = context.arguments;
  const std::string out = output_path(arguments, "out", kNpyMagic);
  const Model model = load_model(context);
  const std::vector<std::vector<int32_t>> tokens = read_sequences(arguments, model);

  const bool encoder = model.info().architecture == "encoder", last_only = arguments.text("rows") == "last";
  if (encoder) refuse_source(arguments, model);
  std::vector<Sequence> sequences;
  if (!encoder) sequences = make_sequences(arguments, model, tokens.size());
  std::vector<Feed> feeds;
  for (size_t i = 0; i < tokens.size(); ++i) {
    feeds.push_back({encoder ? nullptr : &sequences[i], tokens[i], last_only ? Feed::Rows::kLast : Feed::Rows::kAll});
  }
  ForwardOptions options;
  options.output = arguments.flag("hidden") ? regard::Output::kHidden : regard::Output::kLogits;
  options.chunk = arguments.integer("chunk");
  options.stop = &stop_token();
  const int64_t rows = Model::num_rows(feeds);
  const int64_t columns = arguments.flag("hidden") ? model.info().hidden_size : model.info().vocab_size;
  std::vector<float> values(static_cast<size_t>(rows) * static_cast<size_t>(columns));
  if (encoder) encode_all(model, tokens, options, last_only, columns, values.data());
  else model.forward(feeds, options, values.data());
  for (size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      throw Error(Code::kNumeric, fmt::format("row {}, column {} of the result is {}: the weights of this file hold such values, or lead to them; nothing was written",
                                              i / static_cast<size_t>(columns), i % static_cast<size_t>(columns), values[i]));
  save_npy(out, std::vector<int64_t>{rows, columns}, values);
  report_written(context, {{out, "float32", {rows, columns}}});
  return 0;
}

}  // namespace

Command logits_command() {
  return {
      .name = "logits",
      .summary = "write a model's logits or hidden states to a .npy file",
      .description = "Feeds tokens to a model and writes, for each of them, the raw logits of what comes next: float32 [n, vocab], or with "
                     "--hidden the last hidden state after the final norm: float32 [n, hidden]. The sequences of a batch stand below one "
                     "another in the order of the lines. An encoder gives what it says of each token itself, a masked one for example; an "
                     "encoder-decoder reads --source, or --source-ids, and is fed the tokens.",
      .examples = {{"regard logits -m model.gguf --ids \"504 3426 314\" --out logits.npy", "Three rows."},
                   {"regard logits -m model.gguf --prompt \"The sea\" --chunk 1 --rows last --out last.npy", "Token by token; the bits are the same."}},
      .positionals = {},
      .options = join({model_options(),
                       {
                           {.name = "ids", .type = Type::kText, .value = "IDS", .help = "Token ids: '1 2 3'.", .section = Section::kCommon},
                           {.name = "prompt", .letter = 'p', .type = Type::kText, .value = "TEXT", .help = "A text instead of ids.",
                            .section = Section::kCommon},
                           {.name = "batch", .type = Type::kInputFile, .value = "FILE",
                            .help = "A file with the ids of one sequence per line; - is standard input.", .section = Section::kCommon},
                           {.name = "source", .type = Type::kText, .value = "TEXT", .help = "The text that the encoder of an encoder-decoder reads."},
                           {.name = "source-ids", .type = Type::kText, .value = "IDS", .help = "The same as token ids."},
                           {.name = "out", .letter = 'o', .type = Type::kOutputFile, .value = "FILE",
                            .help = "The .npy file to write: float32 [n, vocab] or [n, hidden]; - is standard output.",
                            .presence = Presence::kRequired, .section = Section::kCommon},
                           {.name = "rows", .type = Type::kChoice, .value = "WHICH", .help = "Rows to write: of all tokens, or of the last of each sequence.",
                            .fallback = "all", .choices = "all|last"},
                           {.name = "hidden", .help = "Writes the last hidden state instead of logits."},
                           {.name = "no-bos", .help = "Does not add to --prompt and --source the tokens that the model wants around a text."},
                           json_option(),
                           chunk_option(),
                           force_option(),
                       }}),
      .run = run_logits,
  };
}

}  // namespace regard::cli
