#include "attend_terms.h"

#include <fmt/format.h>

#include <cmath>

#include "regard/npy.h"

namespace regard::cli {
namespace {

Tensor read_bias(const Arguments& arguments, const TermSizes& sizes) {
  Tensor bias = load_tensor(arguments, "bias", 4, "[batch or 1, heads or 1, q_len or 1, kv_len or 1]");
  const std::vector<int64_t> want = {sizes.batch, sizes.heads, sizes.q_len, sizes.kv_len};
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

// [heads, dim] of Transformer-XL, or nothing.
Tensor read_xl_bias(const Arguments& arguments, std::string_view option, const TermSizes& sizes) {
  if (!arguments.has(option)) return {};
  Tensor bias = load_tensor(arguments, option, 2, "[heads, dim]");
  if (bias.shape != std::vector<int64_t>{sizes.heads, sizes.dim}) {
    throw UsageError(fmt::format("--{} {} has the shape {}; give [{}, {}]", option, arguments.text(option), shape_text(bias.shape), sizes.heads, sizes.dim));
  }
  return bias;
}

Tensor read_xl_vectors(const Arguments& arguments, const TermSizes& sizes) {
  Tensor r = load_tensor(arguments, "xl-r", 3, "[distances, heads, dim]");
  if (r.shape[1] != sizes.heads || r.shape[2] != sizes.dim) {
    throw UsageError(fmt::format("--xl-r {} has the shape {}; give [distances, {}, {}]", arguments.text("xl-r"), shape_text(r.shape), sizes.heads, sizes.dim));
  }
  return r;
}

// `options` say something about `main`, which has to be there.
void need(const Arguments& arguments, std::string_view main, std::initializer_list<std::string_view> options) {
  if (arguments.has(main)) return;
  for (const std::string_view option : options) {
    if (arguments.source(option) == Source::kCommandLine) throw UsageError(fmt::format("--{} needs --{}", option, main));
  }
}

}  // namespace

ScoreTermInputs::ScoreTermInputs(const Arguments& arguments, const TermSizes& sizes) {
  need(arguments, "t5-table", {"t5", "t5-max-distance"});
  need(arguments, "xl-r", {"xl-u", "xl-v", "xl-clamp", "xl-first-distance"});
  need(arguments, "dropout", {"seed", "dropout-weights"});
  if (arguments.has("bias")) bias_ = read_bias(arguments, sizes);
  if (arguments.has("alibi")) alibi_ = read_alibi(arguments, sizes.heads);
  if (arguments.has("t5-table")) t5_ = read_t5(arguments, sizes.heads, t5_table_);
  if (arguments.has("sink")) sink_ = read_sink(arguments, sizes.heads);
  if (arguments.has("xl-r")) {
    xl_u_ = read_xl_bias(arguments, "xl-u", sizes);
    xl_v_ = read_xl_bias(arguments, "xl-v", sizes);
    xl_r_ = read_xl_vectors(arguments, sizes);
    xl_.emplace();
    xl_->r = xl_r_.view();
    xl_->first_distance = arguments.integer("xl-first-distance");
    xl_->clamp = arguments.integer("xl-clamp");
    if (!xl_u_.shape.empty()) xl_->u = xl_u_.view();
    if (!xl_v_.shape.empty()) xl_->v = xl_v_.view();
  }
  if (arguments.has("dropout")) {
    const double rate = arguments.number("dropout");
    if (rate >= 1) throw UsageError(fmt::format("--dropout is {}; give less than 1", rate));
    dropout_ = Dropout{.rate = rate, .seed = arguments.natural("seed")};
    if (arguments.text("dropout-weights") == "after") dropout_->weights = Dropout::Weights::kAfter;
  }
}

void ScoreTermInputs::apply(AttentionOptions& options) {
  if (!bias_.shape.empty()) options.bias = bias_.view();
  options.alibi = alibi_;
  options.t5 = t5_;
  options.xl = xl_;
  options.dropout = dropout_;
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
      {.name = "xl-r", .type = Type::kInputFile, .value = "FILE",
       .help = "Adds Transformer-XL's relative term scale (q + v) . r[query - key]: float [distances, heads, dim]."},
      {.name = "xl-u", .type = Type::kInputFile, .value = "FILE", .help = "Added to the queries in front of the keys: float [heads, dim]."},
      {.name = "xl-v", .type = Type::kInputFile, .value = "FILE", .help = "Added to the queries in front of --xl-r: float [heads, dim]."},
      {.name = "xl-clamp", .type = Type::kInteger, .value = "N", .help = "Larger distances take the vector of this one; 0: none do.",
       .fallback = "0", .min = 0, .max = 1099511627776},
      {.name = "xl-first-distance", .type = Type::kInteger, .value = "N",
       .help = "The distance that the first vector of --xl-r is for; negative when keys behind their query have vectors.", .fallback = "0",
       .min = -1099511627776, .max = 1099511627776},
      {.name = "dropout", .type = Type::kNumber, .value = "P",
       .help = "Leaves out weights with this probability, below 1, and divides the others by 1 - P.", .min = 0, .max = 1},
      {.name = "seed", .type = Type::kNatural, .value = "S",
       .help = "Which weights --dropout leaves out; the same on any number of threads.", .fallback = "0"},
      {.name = "dropout-weights", .type = Type::kChoice, .value = "WHEN", .help = "Whether --weights are those before or after --dropout.",
       .fallback = "before", .choices = "before|after"},
  };
}

}  // namespace regard::cli
