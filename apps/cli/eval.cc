// `regard eval`: how well a model predicts a text, beside n-grams where asked for (eval_baseline.h). What was measured is kept in --state, so that a stopped run goes on.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>

#include "eval_baseline.h"
#include "eval_task.h"
#include "input.h"
#include "model_options.h"
#include "regard/error.h"
#include "regard/runtime.h"

namespace regard::cli {
namespace {

using Texts = std::vector<std::vector<int32_t>>;  // the token ids of each text that is read on its own

// The file as one text, or with --lines each of its lines, which begins behind a line end and is to be ended by one.
Texts encode(const Model& model, const std::string& text, const Arguments& arguments) {
  const EncodeOptions options{SpecialTokens::kAsText, arguments.flag("no-bos") ? AddSpecial::kNone : AddSpecial::kAsModel};
  if (!arguments.flag("lines")) return {model.tokenizer().encode(text, options)};
  Texts texts;
  for (const std::string& line : split(text, '\n')) texts.push_back(model.tokenizer().encode("\n" + line + "\n", options));
  return texts;
}

int64_t count(const Texts& texts) {
  return std::accumulate(texts.begin(), texts.end(), int64_t{0}, [](int64_t sum, const auto& text) { return sum + std::ssize(text); });
}

// evaluate() over texts one after the other; next_token counts through all of them.
EvalState evaluate_all(const Model& model, const Texts& texts, EvalOptions options, EvalState state) {
  const auto progress = options.progress;
  const int64_t total = count(texts);
  int64_t before = 0;
  for (const std::vector<int32_t>& text : texts) {
    const int64_t end = before + std::ssize(text);
    if (state.next_token < end) {
      options.progress = [&](int64_t done, int64_t, double nats) { progress(before + done, total, nats); };
      state.next_token = std::max<int64_t>(state.next_token - before, 0);
      state = evaluate(model, text, options, state);
      state.next_token += before;
      if (state.next_token < end) break;  // stopped
    }
    before = end;
  }
  return state;
}

// What a state belongs to: another text, model or window would continue something else. FNV-1a over all of it.
uint64_t fingerprint(const Model& model, const Texts& texts, const EvalOptions& options) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto mix = [&hash](uint64_t value) {
    for (int i = 0; i < 8; ++i) hash = (hash ^ (value >> (8 * i) & 255u)) * 0x100000001b3u;
  };
  mix(model.info().file_bytes);
  mix(static_cast<uint64_t>(model.info().num_parameters));
  mix(static_cast<uint64_t>(model.context()));
  mix(static_cast<uint64_t>(options.window));
  mix(static_cast<uint64_t>(options.stride));
  for (const std::vector<int32_t>& tokens : texts) {
    if (texts.size() > 1) mix(tokens.size());
    for (const int32_t id : tokens) mix(static_cast<uint64_t>(id));
  }
  return hash;
}

constexpr std::string_view kStateTitle = "regard-eval-state 2", kAnyStateTitle = "regard-eval-state ";

// FNV-1a of the lines before it: every change of one byte changes it.
std::string checksum_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return fmt::format("{:016x}", hash);
}

// The nats are written as a hexadecimal float: a run that goes on ends with the same bits as one that was not stopped.
std::string state_text(uint64_t print, const EvalState& state) {
  const std::string text = fmt::format("{}\n{:016x}\n{}\n{}\n{:a}\n", kStateTitle, print, state.next_token, state.scored_tokens, state.nats);
  return text + checksum_of(text) + "\n";
}

EvalState parse_state(const std::string& text, uint64_t print, const std::string& path) {
  const std::vector<std::string> lines = split(text, '\n');
  if (lines.empty() || !lines[0].starts_with(kAnyStateTitle)) throw Error(Code::kCorruptData, fmt::format("'{}' is no state of an evaluation", path));
  if (lines[0] != kStateTitle) throw Error(Code::kCorruptData, fmt::format("'{}' is no state of this version; remove it to start anew", path));
  const size_t end_of_text = text.rfind('\n', text.size() - 2) + 1;
  if (lines.size() != 6 || !text.ends_with('\n') || lines[5] != checksum_of(std::string_view(text).substr(0, end_of_text))) {
    throw Error(Code::kCorruptData, fmt::format("'{}' is damaged; remove it to start anew", path));
  }
  if (lines[1] != fmt::format("{:016x}", print)) {
    throw UsageError(fmt::format("'{}' belongs to another model, text or window; choose another --state", path));
  }
  EvalState state;
  double nats = 0;
  const auto whole = [&](const std::string& line, int64_t& value) {
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
    return error == std::errc() && end == line.data() + line.size() && value >= 0;
  };
  std::string_view hex = lines[4];
  if (hex.starts_with("0x")) hex.remove_prefix(2);
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), nats, std::chars_format::hex);
  if (!whole(lines[2], state.next_token) || !whole(lines[3], state.scored_tokens) || error != std::errc() || end != hex.data() + hex.size() ||
      !std::isfinite(nats)) {
    throw Error(Code::kCorruptData, fmt::format("'{}' is damaged", path));
  }
  state.nats = nats;
  return state;
}

// What is kept there; nothing where no file is.
std::optional<std::string> kept_state(const std::string& path) {
  check_place(path);
  try {
    return read_regular(path);
  } catch (const Error& error) {
    if (error.code() == Code::kNotFound) return {};
    throw;
  }
}

/// The baseline alone, when there is no model.
int run_baseline(Context& context) {
  for (const char* name : {"state", "lines", "window", "stride", "max-perplexity", "no-bos", "chunk", "context", "cache-type", "mmap"})
    if (context.arguments.source(name) == Source::kCommandLine) throw UsageError(fmt::format("--{} is about a model; give -m, or leave it out: --baseline ngram alone counts in the whole text", name));
  const std::string text = read_text_input("", false, context.arguments.text("file"), "--file");
  const Baseline baseline = measure_baseline(context, nullptr, text);
  if (context.arguments.flag("json")) {
    JsonWriter json;
    json.begin_object().member("schema", 1);
    write_baseline(json, baseline);
    context.out.write(json.end().finish() + "\n");
  } else {
    context.out.write(baseline_text(baseline));
  }
  return 0;
}

int run_eval(Context& context) {
  const Arguments& arguments = context.arguments;
  if (wants_task(arguments)) return run_task(context);
  const bool with_baseline = wants_baseline(arguments);
  if (!arguments.has("model")) return run_baseline(context);
  const std::string& state_path = arguments.text("state");
  if (state_path == "-") throw UsageError("--state needs a file name; it is read and written");
  const std::optional<std::string> kept = state_path.empty() ? std::nullopt : kept_state(state_path);
  const Model model = load_model(context);
  if (model.info().num_classes > 0)
    throw Error(Code::kUnsupported, "this model tells classes apart and predicts no text; --run measures it, and regard classify reads texts with it");
  if (model.info().architecture != "decoder")
    throw Error(Code::kUnsupported, fmt::format("this model is an {}, and a text is predicted by a decoder; --run asks the model of a training run questions of its task",
                                                     model.info().architecture == "encoder" ? "encoder" : "encoder-decoder"));
  const std::string text = read_text_input("", false, arguments.text("file"), "--file");
  const Texts texts = encode(model, text, arguments);
  const int64_t tokens = count(texts);
  if (tokens < 2) throw UsageError(fmt::format("the text has {} tokens; at least 2 are needed to predict one", tokens));

  EvalOptions options;
  options.window = arguments.has("window") ? arguments.integer("window") : 0;
  options.stride = arguments.has("stride") ? arguments.integer("stride") : 0;
  options.prefill_chunk = arguments.integer("chunk");
  options.stop = &stop_token();

  const uint64_t print = fingerprint(model, texts, options);
  EvalState state;
  if (kept) state = parse_state(*kept, print, state_path);
  if (state.next_token > 0) context.messages.note(fmt::format("going on at token {}", state.next_token));

  options.progress = [&](int64_t done, int64_t all, double nats) {
    const double each = done > 0 ? nats / static_cast<double>(done) : 0;
    context.messages.progress(fmt::format("{:.4f} nats per token", each), static_cast<uint64_t>(done), static_cast<uint64_t>(all));
  };
  state = evaluate_all(model, texts, options, state);
  context.messages.end_progress();
  if (!state_path.empty()) save_file(state_path, state_text(print, state));
  const bool complete = state.next_token >= tokens;
  if (state.scored_tokens == 0) {
    if (signal_received() != 0) return 0;  // stopped before the first window: there is nothing to report
    throw Error(Code::kNumeric, "no token was scored");
  }

  const double nats = state.nats / static_cast<double>(state.scored_tokens), perplexity = std::exp(nats);
  if (!std::isfinite(nats)) throw Error(Code::kNumeric, "the model gives infinite nats to this text");
  std::optional<Baseline> baseline;
  if (with_baseline && complete) baseline = measure_baseline(context, &model.tokenizer(), text);
  if (arguments.flag("json")) {
    JsonWriter json;
    json.begin_object().member("schema", 1).member("tokens", tokens).member("scored_tokens", state.scored_tokens);
    json.member("nats_per_token", nats).key("perplexity");
    if (std::isfinite(perplexity)) json.value(perplexity);
    else json.null();
    json.member("complete", complete);
    if (baseline) write_baseline(json, *baseline);
    context.out.write(json.end().finish() + "\n");
  } else {
    context.out.print("{:.6f} nats per token, perplexity {:.4f}, {} of {} tokens scored{}\n", nats, perplexity, state.scored_tokens,
                      tokens, complete ? "" : " (stopped)");
    if (baseline) context.out.write(baseline_text(*baseline));
  }
  if (arguments.has("max-perplexity") && perplexity > arguments.number("max-perplexity")) {
    context.messages.error(fmt::format("perplexity {:.4f} is above --max-perplexity {}", perplexity, arguments.number("max-perplexity")));
    return exit_status(Code::kFailedCheck);
  }
  return 0;
}

// A baseline needs no model; wants_baseline() asks for one where there is none.
std::vector<Option> optional_model_options() {
  std::vector<Option> options = model_options();
  options.front().presence = Presence::kOptional;
  return options;
}

}  // namespace

Command eval_command() {
  return {
      .name = "eval",
      .summary = "measure how well a model predicts a text",
      .description = "Prints the nats per token and the perplexity of a text. The text is cut into windows, or a window slides over it so that "
                     "each token is predicted from more of what stands before. Ctrl-C stops after the window at hand; with --state the next run "
                     "goes on there. --baseline ngram prints what counting alone gives, with a model beside it or without one. --run asks the model of a "
                     "training run questions of its task that it was not trained on, and says how many it solves; a run on classes is asked the texts that "
                     "it measured on, or those of --file, JSON lines with text and class.",
      .examples = {{"regard eval -m model.gguf --file wiki.txt", "Windows of the model's own length."},
                   {"regard eval --baseline ngram --train train.txt --file held-out.txt", "Uniform, 1-gram to 6-gram, in characters."},
                   {"regard eval --run addition --questions 10000", "How many sums a model trained on the task gets right."},
                   {"regard eval --run reviews --file others.jsonl", "Loss and accuracy of a model that tells classes apart."},
                   {"regard eval -m model.gguf --file wiki.txt --window 1024 --stride 512 --state wiki.state", "Sliding, and able to go on."}},
      .positionals = {},
      .options = join({optional_model_options(),
                       {
                           {.name = "file", .letter = 'f', .type = Type::kInputFile, .value = "FILE",
                            .help = "The text; - or nothing is standard input.", .section = Section::kCommon},
                           {.name = "window", .type = Type::kInteger, .value = "N",
                            .help = "Tokens that the model sees at once; without it, its context.", .unit = "tokens", .min = 2,
                            .max = 16777216, .section = Section::kCommon},
                           {.name = "stride", .type = Type::kInteger, .value = "N",
                            .help = "Tokens by which the window moves; without it, the whole window.", .unit = "tokens", .min = 1,
                            .max = 16777216, .section = Section::kCommon},
                           {.name = "lines", .help = "Each line is a text of its own, as in a file of poems: it is read from its beginning, behind a "
                                                     "line end, and nothing of other lines is seen. The line end behind it is scored too.",
                            .section = Section::kCommon},
                           {.name = "state", .type = Type::kOutputFile, .value = "FILE",
                            .help = "Where to keep what was measured; when it is there, the run goes on from it."},
                           {.name = "max-perplexity", .type = Type::kNumber, .value = "X", .help = "Ends with status 1 when it is above X.",
                            .min = 0},
                           {.name = "no-bos", .help = "Does not add the tokens that the model wants around a text."},
                           chunk_option(),
                           json_option(),
                       },
                       baseline_options(), task_options()}),
      .run = run_eval,
  };
}

}  // namespace regard::cli
