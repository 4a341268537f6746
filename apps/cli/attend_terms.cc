#include "attend_terms.h"

#include <fmt/format.h>

#include <cmath>

#include "regard/npy.h"

namespace regard::cli {
namespace {

Tensor read_bias(const Arguments& arguments, const Tensor& q, const Tensor& k) {
  Tensor bias = load_tensor(arguments, "bias", 4, "[batch or 1, heads or 1, q_len or 1, kv_len or 1]");
  const std::vector<int64_t> want = {q.batch(), q.heads(), q.length(), k.length()};
  for (size_t axis = 0; axis < 4; ++axis) {
    if (bias.shape[axis] != 1 && bias.shape[axis] != want[axis]) {
      throw UsageError(fmt::format("--bias {} has the shape {}; give {}, or 1 in place of any of these", arguments.text("bias"),
                                   shape_text(bias.shape), shape_text(want)));
    }
  }
  return bias;
}

// 'published', numbers, or a file of them.
Alibi read_alibi(const Arguments& arguments, int64_t heads) {
  const std::string& text = arguments.text("alibi");
  Alibi alibi;
  if (text == "published") {
    alibi.slopes = alibi_slopes(heads);
  } else if (text.ends_with(".npy")) {
    alibi.slopes = load_tensor(arguments, "alibi", 1, fmt::format("[{}], a slope for each head", heads)).values;
  } else {
    for (const std::string& word : split(text, ',')) {
      const double slope = parse_number(word, "--alibi");
      if (std::isinf(static_cast<float>(slope))) throw UsageError(fmt::format("--alibi has {}, which float32 cannot hold", word));
      alibi.slopes.push_back(static_cast<float>(slope));
    }
  }
  if (static_cast<int64_t>(alibi.slopes.size()) != heads) {
    throw UsageError(fmt::format("--alibi has {} slopes; give one for each of the {} heads, or 'published'", alibi.slopes.size(), heads));
  }
  return alibi;
}

T5Bias read_t5(const Arguments& arguments, int64_t heads, Tensor& table) {
  table = load_tensor(arguments, "t5-table", 2, "[buckets, heads]");
  if (table.shape[1] != heads) {
    throw UsageError(fmt::format("--t5-table {} has the shape {}; give [buckets, {}]", arguments.text("t5-table"), shape_text(table.shape), heads));
  }
  T5Bias t5;
  t5.table = table.view();
  t5.direction = arguments.text("t5") == "causal" ? T5Direction::kCausal : T5Direction::kBidirectional;
  t5.max_distance = arguments.integer("t5-max-distance");
  const bool both = t5.direction == T5Direction::kBidirectional;
  const int64_t buckets = table.shape[0], exact = buckets / (both ? 4 : 2);
  if (buckets < (both ? 4 : 2) || (both && buckets % 2 != 0)) {
    throw UsageError(fmt::format("--t5-table {} has {} buckets; --t5 {} takes {}", arguments.text("t5-table"), buckets, arguments.text("t5"),
                                 both ? "an even number from 4 on" : "2 or more"));
  }
  if (t5.max_distance <= exact) {
    throw UsageError(fmt::format("--t5-max-distance is {}; with these buckets give more than {}", t5.max_distance, exact));
  }
  return t5;
}

Tensor read_sink(const Arguments& arguments, int64_t heads) {
  Tensor sink = load_tensor(arguments, "sink", 1, fmt::format("[{}], a logit for each head", heads));
  if (sink.shape[0] != heads) {
    throw UsageError(fmt::format("--sink {} has the shape {}; give [{}], a logit for each head", arguments.text("sink"), shape_text(sink.shape), heads));
  }
  return sink;
}

// `options` say something about `main`, which has to be there.
void need(const Arguments& arguments, std::string_view main, std::initializer_list<std::string_view> options) {
  if (arguments.has(main)) return;
  for (const std::string_view option : options) {
    if (arguments.source(option) == Source::kCommandLine) throw UsageError(fmt::format("--{} needs --{}", option, main));
  }
}

}  // namespace

ScoreTermInputs::ScoreTermInputs(const Arguments& arguments, const Tensor& q, const Tensor& k) {
  need(arguments, "t5-table", {"t5", "t5-max-distance"});
  if (arguments.has("bias")) bias_ = read_bias(arguments, q, k);
  if (arguments.has("alibi")) alibi_ = read_alibi(arguments, q.heads());
  if (arguments.has("t5-table")) t5_ = read_t5(arguments, q.heads(), t5_table_);
  if (arguments.has("sink")) sink_ = read_sink(arguments, q.heads());
}

void ScoreTermInputs::apply(AttentionOptions& options) {
  if (!bias_.shape.empty()) options.bias = bias_.view();
  options.alibi = alibi_;
  options.t5 = t5_;
  if (!sink_.shape.empty()) options.sink = sink_.view();
}

std::vector<Option> score_term_options() {
  return {
      {.name = "bias", .type = Type::kInputFile, .value = "FILE",
       .help = "Added to the scores, after --softcap: float [batch or 1, heads or 1, q_len or 1, kv_len or 1]. Where the mask hides, it "
               "does not matter."},
      {.name = "alibi", .type = Type::kText, .value = "SLOPES",
       .help = "Adds -slope |query - key|: 'published' for the paper's slopes, numbers for the heads ('0.5,0.25'), or a .npy file [heads]."},
      {.name = "t5-table", .type = Type::kInputFile, .value = "FILE", .help = "Adds T5's relative bias: float [buckets, heads]."},
      {.name = "t5", .type = Type::kChoice, .value = "DIRECTION", .help = "Which keys its buckets tell apart.", .fallback = "bidirectional",
       .choices = "bidirectional|causal"},
      {.name = "t5-max-distance", .type = Type::kInteger, .value = "N", .help = "Distances from here on share T5's last bucket.",
       .fallback = "128", .min = 2, .max = 1048576},
      {.name = "sink", .type = Type::kInputFile, .value = "FILE",
       .help = "One more score of each head that has no value: float [heads]. It is in the denominator and in --lse."},
  };
}

}  // namespace regard::cli
