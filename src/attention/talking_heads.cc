// Talking heads, row by row in f64. Read TalkingRow::run(): scores of all query heads for a key, their mix, a softmax
// for each head, the mix of the weights, values.
#include "regard/talking_heads.h"

#include <algorithm>
#include <cmath>

#include "attention/call.h"
#include "attention/packed_kv.h"
#include "attention/tensor_check.h"
#include "base/check.h"
#include "base/math.h"
#include "runtime/thread_pool.h"

namespace regard {

namespace {

constexpr std::string_view kName = "attend_talking_heads";
constexpr double kEmpty = -std::numeric_limits<double>::infinity();

struct TalkingCall {
  TensorView<const float> q, k, v;
  TensorView<const float> before, after;  // no data: as the identity
  TensorView<float> out;
  CallSizes sizes;  // of the tensors, but kv_len that of the longest batch row
  const CallRows& rows;
  int64_t num_v_heads = 0, softmax_heads = 0, value_heads = 0;
  double scale = 0, softcap = 0;
  const CallPositions& positions;
  const MaskPlan& plan;
  const std::vector<KeyOrder>& orders;
  Workspace& workspace;
  const StopToken* stop;

  struct Scratch {
    double* scores;   // [query heads] of one key
    double* weights;  // [softmax heads][kv_len], mixed scores first
    uint8_t* seen;    // likewise
    double* sum;      // [value heads][value_dim]
    static Scratch carve(Carver& carver, const TalkingCall& call) {
      const auto pairs = static_cast<size_t>(call.softmax_heads) * static_cast<size_t>(call.sizes.kv_len);
      return {carver.take<double>(static_cast<size_t>(call.sizes.num_q_heads)), carver.take<double>(pairs),
              carver.take<uint8_t>(pairs),
              carver.take<double>(static_cast<size_t>(call.value_heads * call.sizes.value_dim))};
    }
  };

  int64_t num_keys(int64_t b) const noexcept {
    return positions.keys(b) == nullptr ? rows.kv_len(b)
                                        : static_cast<int64_t>(orders[static_cast<size_t>(b)].slot.size());
  }
  // The n-th key by rising position: where it is in k and v.
  int64_t slot(int64_t b, int64_t n) const noexcept {
    return rows.first_key(b) +
           (positions.keys(b) == nullptr ? n : orders[static_cast<size_t>(b)].slot[static_cast<size_t>(n)]);
  }
  int64_t key_position(int64_t b, int64_t n) const noexcept {
    return positions.keys(b) == nullptr ? positions.k_begin(b) + n
                                        : orders[static_cast<size_t>(b)].position[static_cast<size_t>(n)];
  }

  // Of a query and a key by their places in the tensors.
  double score(int64_t entry, int64_t g, int64_t i, int64_t j) const noexcept {
    const float *x = q.at(entry, g, i), *y = k.at(entry, g / (sizes.num_q_heads / sizes.num_kv_heads), j);
    double s = 0;
    for (int64_t c = 0; c < sizes.head_dim; ++c)
      s += static_cast<double>(x[c * q.strides[3]]) * static_cast<double>(y[c * k.strides[3]]);
    s *= scale;
    if (softcap == 0) return s;
    const double e = math::exp(2 * std::fabs(s) / softcap);
    return std::copysign(softcap * (std::isinf(e) ? 1 : (e - 1) / (e + 1)), s);
  }

  void operator()(int64_t item, int thread) const {
    if (stop != nullptr && stop->stop_requested()) return;
    const int64_t entry = item / sizes.q_len, i = item % sizes.q_len;
    const int64_t b = rows.row_of(entry, i);
    Carver carver(workspace.arena(thread));
    const Scratch s = Scratch::carve(carver, *this);
    std::fill_n(s.sum, value_heads * sizes.value_dim, 0.0);
    if (const int64_t p = b < 0 ? -1 : position(b, i - rows.first_query(b)); p >= 0) {
      look(b, i, p, s);
      for (int64_t h = 0; h < softmax_heads; ++h)
        softmax(s.weights + h * sizes.kv_len, s.seen + h * sizes.kv_len, num_keys(b));
      add_values(b, s);
    }
    for (int64_t o = 0; o < value_heads; ++o)
      for (int64_t c = 0; c < sizes.value_dim; ++c)
        *out.at(entry, o, i, c) = static_cast<float>(s.sum[o * sizes.value_dim + c]);
  }

  int64_t position(int64_t b, int64_t query) const noexcept {
    return positions.queries(b) == nullptr ? positions.q_begin(b) + query : positions.queries(b)[query];
  }

  // Which head sees which key, and the mixed scores of the pairs that are seen.
  void look(int64_t b, int64_t i, int64_t p, const Scratch& s) const noexcept {
    const int64_t keys = num_keys(b);
    for (int64_t h = 0; h < softmax_heads; ++h) {
      int64_t chunk = -1;
      uint64_t word = 0;
      for (int64_t n = 0; n < keys; ++n) {
        const int64_t at = key_position(b, n);
        if (at / 64 != chunk) {
          chunk = at / 64;
          plan.fill_words(b, h, p, chunk * 64, 1, &word);
        }
        s.seen[h * sizes.kv_len + n] = (word >> (at % 64)) & 1;
      }
    }
    for (int64_t n = 0; n < keys; ++n) {
      bool any = false;
      for (int64_t h = 0; h < softmax_heads; ++h) any = any || s.seen[h * sizes.kv_len + n] != 0;
      if (!any) continue;
      for (int64_t g = 0; g < sizes.num_q_heads; ++g) s.scores[g] = score(rows.entry(b), g, i, slot(b, n));
      for (int64_t h = 0; h < softmax_heads; ++h) {
        if (s.seen[h * sizes.kv_len + n] == 0) continue;
        double mixed = before.data == nullptr ? s.scores[h] : 0;
        if (before.data != nullptr)
          for (int64_t g = 0; g < sizes.num_q_heads; ++g) mixed += s.scores[g] * static_cast<double>(*before.at(g, h));
        s.weights[h * sizes.kv_len + n] = mixed;
      }
    }
  }

  // A score of -inf has weight 0; one of +inf or NaN makes all weights of the head NaN.
  static void softmax(double* w, const uint8_t* seen, int64_t keys) noexcept {
    double top = kEmpty, sum = 0;
    for (int64_t n = 0; n < keys; ++n)
      if (seen[n] != 0) top = std::isnan(top) || w[n] <= top ? top : w[n];
    if (top == kEmpty) {
      std::fill_n(w, keys, 0.0);
      return;
    }
    for (int64_t n = 0; n < keys; ++n)
      if (seen[n] != 0) sum += w[n] = math::exp(w[n] - top);
    for (int64_t n = 0; n < keys; ++n) w[n] = seen[n] != 0 ? w[n] / sum : 0.0;
  }

  void add_values(int64_t b, const Scratch& s) const noexcept {
    const int64_t share = value_heads / num_v_heads;
    for (int64_t n = 0; n < num_keys(b); ++n)
      for (int64_t o = 0; o < value_heads; ++o) {
        bool any = false;
        double weight = 0;
        for (int64_t h = after.data == nullptr ? o : 0; h < (after.data == nullptr ? o + 1 : softmax_heads); ++h) {
          if (s.seen[h * sizes.kv_len + n] == 0) continue;
          any = true;
          weight +=
              s.weights[h * sizes.kv_len + n] * (after.data == nullptr ? 1 : static_cast<double>(*after.at(h, o)));
        }
        if (!any) continue;
        const float* value = v.at(rows.entry(b), o / share, slot(b, n));
        for (int64_t c = 0; c < sizes.value_dim; ++c)
          s.sum[o * sizes.value_dim + c] += weight * static_cast<double>(value[c * v.strides[3]]);
      }
  }
};

void refuse_what_fuses(const AttentionOptions& options) {
  const auto refuse = [](bool given, std::string_view name) {
    if (given) fail(Code::kUnsupported, "[{}] {} is not supported together with mixed heads", kName, name);
  };
  refuse(options.bias.rank > 0, "bias");
  refuse(options.alibi.has_value(), "alibi");
  refuse(options.t5.has_value(), "t5");
  refuse(options.xl.has_value(), "xl");
  refuse(options.dropout.has_value(), "dropout");
  refuse(options.sink.rank > 0, "sink");
}

}  // namespace

void attend_talking_heads(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                          const TalkingHeads& mix, const Mask& mask, const AttentionOptions& options,
                          TensorView<float> out) {
  std::vector<ByteRange> inputs = {check_tensor(kName, "q", q, 4), check_tensor(kName, "k", k, 4),
                                   check_tensor(kName, "v", v, 4)};
  refuse_what_fuses(options);
  CallSizes sizes = check_sizes(kName, q, k, nullptr);
  const AttentionShape shape = check_numbers(kName, sizes, options);
  const CallRows call_rows(kName, sizes, options);
  require(v.shape[0] == sizes.batch && v.shape[2] == sizes.kv_len, "[{}] k {} and v {} must agree in batch and length",
          kName, shape_text(k), shape_text(v));
  sizes.value_dim = v.shape[3];
  require(sizes.value_dim >= 1 && v.shape[1] >= 1, "[{}] v has shape {}, expected at least one head and element", kName,
          shape_text(v));
  const auto check_mix = [&](std::string_view name, const TensorView<const float>& matrix, int64_t rows) {
    if (matrix.data == nullptr && matrix.rank == 0) return rows;
    inputs.push_back(check_tensor(kName, name, matrix, 2));
    require(matrix.shape[0] == rows && matrix.shape[1] >= 1 && matrix.shape[1] <= INT32_MAX,
            "[{}] {} has shape {}, expected [{}, heads]", kName, name, shape_text(matrix), rows);
    return matrix.shape[1];
  };
  const int64_t softmax_heads = check_mix("mix.before", mix.before, sizes.num_q_heads);
  const int64_t value_heads = check_mix("mix.after", mix.after, softmax_heads);
  require(value_heads % v.shape[1] == 0, "[{}] {} value heads cannot share the {} heads of v {} evenly", kName,
          value_heads, v.shape[1], shape_text(v));
  const ByteRange range = check_tensor(kName, "out", out, 4);
  require(out.shape[0] == sizes.batch && out.shape[1] == value_heads && out.shape[2] == sizes.q_len &&
              out.shape[3] == sizes.value_dim,
          "[{}] out has shape {}, expected [{}, {}, {}, {}]", kName, shape_text(out), sizes.batch, value_heads,
          sizes.q_len, sizes.value_dim);
  check_no_self_overlap(kName, "out", out);
  for (const ByteRange& input : inputs)
    require(!range.overlaps(input), "[{}] the memory of out overlaps that of an input: give it its own", kName);
  const CallPositions positions(kName, sizes, call_rows, mask, options);
  if (sizes.batch == 0 || sizes.q_len == 0) return;
  const MaskPlan plan(mask, options.limits, call_rows.batch(), softmax_heads);
  positions.check_queries(plan);
  std::vector<KeyOrder> orders(static_cast<size_t>(call_rows.batch()));
  for (int64_t b = 0; b < call_rows.batch(); ++b) {
    PackSource source;
    source.kv_len = call_rows.kv_len(b);
    source.positions = positions.keys(b);
    if (source.positions != nullptr) orders[static_cast<size_t>(b)] = sort_keys(source, b);
  }
  sizes.kv_len = call_rows.widest().kv_len;
  ThreadPool& pool = default_pool();
  Workspace workspace;
  TalkingCall call{.q = q,
                   .k = k,
                   .v = v,
                   .before = mix.before,
                   .after = mix.after,
                   .out = out,
                   .sizes = sizes,
                   .rows = call_rows,
                   .num_v_heads = v.shape[1],
                   .softmax_heads = softmax_heads,
                   .value_heads = value_heads,
                   .scale = shape.scale,
                   .softcap = shape.softcap,
                   .positions = positions,
                   .plan = plan,
                   .orders = orders,
                   .workspace = workspace,
                   .stop = options.stop};
  Carver measure(nullptr);
  TalkingCall::Scratch::carve(measure, call);
  workspace.reserve(pool.size(), measure.used());
  pool.for_each(sizes.batch * sizes.q_len, call, options.stop);
  if (options.stop != nullptr && options.stop->stop_requested())
    fail(Code::kCancelled, "[{}] stopped on request", kName);
}

}  // namespace regard
