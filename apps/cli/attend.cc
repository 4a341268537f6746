// `regard attend`: attention over arrays in .npy files.
#include <fmt/format.h>
#include <cmath>

#include <algorithm>
#include <cctype>
#include <utility>

#include "attend_gradients.h"
#include "attend_looks.h"
#include "attend_positions.h"
#include "attend_terms.h"
#include "input.h"
#include "mask_options.h"
#include "regard/attention.h"
#include "regard/error.h"
#include "regard/npy.h"
#include "tensor_input.h"

namespace regard::cli {
namespace {

// The names inside the table(...) terms of a mask.
std::vector<std::string> table_names(std::string_view text) {
  std::vector<std::string> names;
  for (size_t at = text.find("table"); at != std::string_view::npos; at = text.find("table", at + 1)) {
    size_t begin = text.find_first_not_of(' ', at + 5);
    if (begin == std::string_view::npos || text[begin] != '(') continue;
    begin = text.find_first_not_of(' ', begin + 1);
    size_t end = begin;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) ++end;
    if (begin < end) names.emplace_back(text.substr(begin, end - begin));
  }
  return names;
}

// --mask with --bind, where --table serves every table name that --bind does not.
Mask read_mask(const Arguments& arguments, Bindings& bindings) {
  std::string text = arguments.text("mask");
  if (arguments.has("table")) {
    if (arguments.source("mask") == Source::kDefault) text = "table(t)";
    const BitTable table = load_table(arguments.text("table"));
    bool used = false;
    for (const std::string& name : table_names(text)) used = bindings.tables.emplace(name, table).second || used;
    if (!used) throw UsageError(fmt::format("--table is given, but '{}' has no table(...) term without a --bind", text));
  }
  return Mask::parse(text, bindings);
}

// What attend() would refuse in words of the library, in words of the command line.
void check_shapes(const Tensor& q, const Tensor& k, const Tensor& v) {
  const auto shapes = [&] { return fmt::format("--q {}, --k {} and --v {}", shape_text(q.shape), shape_text(k.shape), shape_text(v.shape)); };
  if (k.batch() != q.batch() || v.batch() != q.batch()) throw UsageError(shapes() + " have different numbers of batch rows");
  if (k.dim() != q.dim()) throw UsageError(fmt::format("{}: queries have {} elements and keys {}; they must agree", shapes(), q.dim(), k.dim()));
  if (v.length() != k.length() || v.heads() != k.heads()) throw UsageError(shapes() + ": keys and values must agree in heads and length");
  if (q.heads() == 0 || k.heads() == 0 || q.heads() % k.heads() != 0) {
    throw UsageError(fmt::format("{}: {} heads of --q cannot share {} heads of --k evenly", shapes(), q.heads(), k.heads()));
  }
}

void check_placement(const Arguments& arguments, const Tensor& q, const Tensor& k, const Mask& mask) {
  for (const char* option : {"q-begin", "k-begin", "q-positions", "k-positions", "offsets"}) {
    if (arguments.has(option)) return;
  }
  if (q.length() == k.length() || !mask.compares_positions()) return;
  throw UsageError(fmt::format("'{}' compares positions, and where the {} queries stand among the {} keys is not stated; give --q-begin{}", mask.text(),
                               q.length(), k.length(),
                               q.length() < k.length() ? fmt::format(", {} when they are the last ones", k.length() - q.length()) : ""));
}

std::vector<std::string_view> result_options() {
  std::vector<std::string_view> options = {"out", "lse", "weights", "stats", "top", "top-weights", "column-sums"};
  options.insert(options.end(), gradient_outputs().begin(), gradient_outputs().end());
  return options;
}

// Two arrays behind each other are no .npy file.
void check_outputs(const Arguments& arguments) {
  bool any = false;
  std::string_view first;
  for (const std::string_view option : result_options()) {
    any = any || arguments.has(option);
    if (arguments.text(option) != "-") continue;
    if (!first.empty()) throw UsageError(fmt::format("--{} and --{} cannot both go to standard output", first, option));
    first = option;
  }
  if (!any) throw UsageError("nothing to write; give --out, --lse, --weights, --stats, --top or --column-sums, or with --grad --dq, --dk or --dv");
}

// Before anything is computed: attend() itself would take it.
void check_arithmetic(const Arguments& arguments) {
  if (arguments.text("arithmetic") == "f32") return;
  for (const char* option : {"weights", "stats", "top", "column-sums", "grad", "xl-r"}) {
    if (arguments.has(option)) throw UsageError(fmt::format("--{} takes no --arithmetic {}; use f32", option, arguments.text("arithmetic")));
  }
}

// A refusal of the library with its words for the options.
std::string in_options(std::string message) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"q_encoding_positions", "--q-encoding-positions"}, {"k_encoding_positions", "--k-encoding-positions"}, {"q_positions", "--q-positions"},
      {"k_positions", "--k-positions"}, {"q_begin", "--q-begin"}, {"k_begin", "--k-begin"}, {"q_offsets", "--offsets"}, {"k_offsets", "--k-offsets"},
      {"xl.r ", "--xl-r "}, {"a clamp", "--xl-clamp"}, {"or positions", "or --q-positions and --k-positions"}};
  for (const auto& [word, option] : kWords) {
    for (size_t at = message.find(word); at != std::string::npos; at = message.find(word, at + option.size())) {
      if (at > 0 && (message[at - 1] == '-' || message[at - 1] == '_')) continue;
      message.replace(at, word.size(), option);
    }
  }
  const size_t end = message.starts_with('[') ? message.find("] ") : std::string::npos;
  return end == std::string::npos ? message : message.substr(end + 2);
}

int run_attend(Context& context) {
  const Arguments& arguments = context.arguments;
  check_outputs(arguments);
  check_arithmetic(arguments);
  const std::string out_path = output_path(arguments, "out", kNpyMagic), lse_path = output_path(arguments, "lse", kNpyMagic),
                    weights_path = output_path(arguments, "weights", kNpyMagic);
  constexpr std::string_view kLayout = "[batch, heads, seq, dim]";
  Tensor q = load_tensor(arguments, "q", 4, kLayout), k = load_tensor(arguments, "k", 4, kLayout), v = load_tensor(arguments, "v", 4, kLayout);
  for (const auto& [option, tensor] : {std::pair{"q", &q}, std::pair{"k", &k}, std::pair{"v", &v}}) round_tensor(arguments, option, *tensor);
  check_shapes(q, k, v);
  const Positions q_positions = read_positions(arguments, 'q', q), k_positions = read_positions(arguments, 'k', k);
  Bindings bindings = read_bindings(arguments);
  const Mask mask = read_mask(arguments, bindings);
  LookRequest looks(arguments, bindings);
  check_placement(arguments, q, k, mask);
  ScoreTermInputs terms(arguments, {q_positions.batch(q), q.heads(), q_positions.longest(q), k_positions.longest(k), q.dim()});

  AttentionOptions options;
  if (arguments.has("scale")) options.scale = arguments.number("scale");
  options.softcap = arguments.number("softcap");
  if (arguments.text("arithmetic") == "bf16") options.arithmetic = AttentionArithmetic::kBf16Dots;
  options.q_begin = q_positions.begin;
  options.k_begin = k_positions.begin;
  options.q_positions = q_positions.slots.view();
  options.k_positions = k_positions.slots.view();
  options.q_encoding_positions = q_positions.encoding.view();
  options.k_encoding_positions = k_positions.encoding.view();
  options.q_offsets = q_positions.offsets;
  options.k_offsets = k_positions.offsets;
  terms.apply(options);
  options.limits = read_limits(arguments, bindings);
  options.stop = &stop_token();
  GradientCall gradients(arguments, q, k, v, options);
  turn_by_rope(arguments, q_positions, k_positions, q.dim(), Turn::kForth, q, k);

  // All memory is taken before the work begins.
  Tensor out = empty_tensor({q.batch(), q.heads(), q.length(), v.dim()}), lse_values = empty_tensor({q.batch(), q.heads(), q.length()});
  Tensor weights = empty_tensor(weights_path.empty() ? std::vector<int64_t>{0} : std::vector<int64_t>{q.batch(), q.heads(), q.length(), k.length()});
  looks.reserve(q, k);
  const TensorView<float> lse(lse_values.values.data(), {q.batch(), q.heads(), q.length()});
  try {
    looks.attend(q, k, v, mask, options, out, lse);
  } catch (const Error& error) {
    if (error.code() != Code::kInvalidArgument) throw;
    throw UsageError(in_options(error.what()));
  }

  // NaN and infinity that a query sees come through by contract; whoever did not plant them should hear of it.
  const auto odd = std::count_if(out.values.begin(), out.values.end(), [](float x) { return !std::isfinite(x); });
  if (odd > 0) context.messages.note(fmt::format("{} of {} values of the result are not finite: a visible key, value or score is not", odd, out.values.size()));

  std::vector<WrittenArray> written;
  const auto save = [&written](const std::string& path, const Tensor& tensor) {
    save_npy(path, tensor.shape, tensor.values);
    written.push_back({path, "float32", tensor.shape});
  };
  if (!out_path.empty()) save(out_path, out);
  if (!lse_path.empty()) save(lse_path, lse_values);
  if (!weights_path.empty()) {
    attention_weights(q.view(), k.view(), lse, mask, options, {0, q.length()}, {0, k.length()}, weights.view());
    save(weights_path, weights);
  }
  looks.run(q, k, lse, mask, options, written);
  gradients.compute(q, k, v, out, lse_values, mask, options);
  turn_by_rope(arguments, q_positions, k_positions, q.dim(), Turn::kBack, gradients.dq(), gradients.dk());
  gradients.save(save);
  report_written(context, written);
  return 0;
}

std::vector<Option> attend_options() {
  return join({{
                   {.name = "q", .type = Type::kInputFile, .value = "FILE", .help = "Queries, a .npy file: float [batch, heads, q_len, dim].",
                    .presence = Presence::kRequired, .section = Section::kCommon},
                   {.name = "k", .type = Type::kInputFile, .value = "FILE",
                    .help = "Keys: float [batch, kv_heads, kv_len, dim]; heads is a multiple of kv_heads.",
                    .presence = Presence::kRequired, .section = Section::kCommon},
                   {.name = "v", .type = Type::kInputFile, .value = "FILE", .help = "Values: float [batch, kv_heads, kv_len, value_dim].",
                    .presence = Presence::kRequired, .section = Section::kCommon},
                   {.name = "mask", .type = Type::kText, .value = "MASK", .help = "Who may look at whom; docs/masks.md lists the terms.",
                    .fallback = "full", .section = Section::kCommon},
                   {.name = "out", .letter = 'o', .type = Type::kOutputFile, .value = "FILE",
                    .help = "Result: float32 [batch, heads, q_len, value_dim]; - is standard output.", .section = Section::kCommon},
                   {.name = "lse", .type = Type::kOutputFile, .value = "FILE",
                    .help = "Logarithms of the sums of exponentials: float32 [batch, heads, q_len]; -inf for a query that sees nothing.",
                    .section = Section::kCommon},
                   {.name = "weights", .type = Type::kOutputFile, .value = "FILE",
                    .help = "Weights: float32 [batch, heads, q_len, kv_len]; exactly 0 where the mask hides.", .section = Section::kCommon},
                   {.name = "table", .type = Type::kInputFile, .value = "FILE",
                    .help = "Bits of the mask's table term: bool or uint8 [batch or 1, heads or 1, q, k]; true means may look."},
               },
               mask_limit_options(),
               position_options(),
               {
                   {.name = "dtype", .type = Type::kChoice, .value = "TYPE",
                    .help = "Rounds q, k and v to this type when they are read, as if they were stored in it; results are float32, and so is the "
                            "arithmetic unless --arithmetic says otherwise.",
                    .fallback = "f32", .choices = "f32|bf16|f16"},
                   {.name = "arithmetic", .type = Type::kChoice, .value = "NAME",
                    .help = "bf16: rounds q, k, v and the weights to bf16 and sums their products in float32, with instructions that "
                            "avx512_bf16 has; whatever --dtype says, and about twice as fast. Not with --xl-r, weights, looks or gradients.",
                    .fallback = "f32", .choices = "f32|bf16"},
                   {.name = "scale", .type = Type::kNumber, .value = "X", .help = "Multiplies the scores; without it, 1 / sqrt(dim).", .min = -1e30, .max = 1e30},
                   {.name = "softcap", .type = Type::kNumber, .value = "X",
                    .help = "Bounds the scores: X tanh(score / X), before biases and mask; 0 is off.", .fallback = "0", .min = 0},
               },
               score_term_options(),
               look_options(),
               gradient_options(),
               {
                   json_option(),
                   force_option(),
               }});
}

}  // namespace

Command attend_command() {
  return {
      .name = "attend",
      .summary = "compute attention over .npy tensors",
      .description = "Computes softmax(mask(softcap(scale q k^T) + biases)) v in float32, exactly. A query that sees no key gives zeros and lse -inf; what "
                     "the mask hides cannot matter, even if it is NaN. float16 and float64 files are read as float32.",
      .examples = {{"regard attend --q q.npy --k k.npy --v v.npy --mask causal --out out.npy", "Causal attention."},
                   {"regard attend --q q.npy --k k.npy --v v.npy --mask \"causal & window(127, 0)\" --q-begin 512 --weights w.npy",
                    "The weights of queries that stand behind 512 keys."},
                   {"regard attend --q q.npy --k k.npy --v v.npy --mask causal --stats stats.npy --top-k 4 --top keys.npy --json",
                    "What each row amounts to, and the four keys that it looks at most."},
                   {"regard attend --q q.npy --k k.npy --v v.npy --mask causal --grad dout.npy --dq dq.npy --dk dk.npy --dv dv.npy",
                    "The gradients of a loss, from its gradient with respect to the result."}},
      .positionals = {},
      .options = attend_options(),
      .run = run_attend,
  };
}

}  // namespace regard::cli
