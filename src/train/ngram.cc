// All n-grams of all orders are one tree: a node is a run of tokens, its children are the runs with one token more. The edges lie in one
// hash table. While a text is read, the runs that end at the last token are kept as nodes, one per length; each step down an edge is
// both the count that a prediction needs and the run of the next step. Start at NgramModel::nats.
#include "regard/ngram.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"

namespace regard {
namespace {

constexpr uint32_t kNowhere = ~uint32_t{0};
constexpr uint64_t kMaxNodes = uint64_t{1} << 31;
constexpr size_t kStride = size_t{1} << 16;  // tokens between two looks at the stop token

struct Node {
  uint32_t count = 0;     // of the run itself
  uint32_t followed = 0;  // of its children together; less than count where the text ends
  uint32_t different = 0;  // children
};

/// (parent, token) -> child: linear probing, at most half full.
class Edges {
 public:
  uint32_t find(uint32_t parent, int32_t token) const { return slots_.empty() ? kNowhere : slots_[place(parent, token)].child; }

  /// The child, which is `fresh` when there was none.
  uint32_t find_or_add(uint32_t parent, int32_t token, uint32_t fresh) {
    if (2 * (used_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[place(parent, token)];
    if (slot.child == kNowhere) slot = {key(parent, token), fresh}, ++used_;
    return slot.child;
  }

 private:
  struct Slot {
    uint64_t key = 0;
    uint32_t child = kNowhere;
  };
  static uint64_t key(uint32_t parent, int32_t token) { return uint64_t{parent} << 32 | static_cast<uint32_t>(token); }

  /// Where the edge is, or where it would be.
  size_t place(uint32_t parent, int32_t token) const {
    const uint64_t wanted = key(parent, token);
    // Multiplication carries upwards only; the high half brings the parent's bits down.
    const uint64_t mixed = (wanted ^ wanted >> 32) * 0x9E3779B97F4A7C15u;
    size_t at = (mixed ^ mixed >> 29) & (slots_.size() - 1);
    while (slots_[at].child != kNowhere && slots_[at].key != wanted) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  void grow() {
    std::vector<Slot> old(slots_.empty() ? 1024 : 2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.child != kNowhere) slots_[place(static_cast<uint32_t>(slot.key >> 32), static_cast<int32_t>(slot.key & 0xFFFFFFFFu))] = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t used_ = 0;
};

/// The nodes of the last 0, 1, ... order - 1 tokens; kNowhere for runs that were never seen.
using Runs = std::array<uint32_t, kMaxNgramOrder>;

}  // namespace

struct NgramModel::Impl {
  int64_t order = 0, vocab_size = 0;
  std::vector<Node> nodes{Node{}};  // the first one is the empty run
  Edges edges;

  void check_token(int32_t token, std::string_view function) const {
    require(token >= 0 && token < vocab_size, "[NgramModel::{}] token {} is outside the vocabulary, expected 0 to {}", function, token, vocab_size - 1);
  }

  static Runs no_runs() {
    Runs runs;
    runs.fill(kNowhere);
    runs[0] = 0;
    return runs;
  }

  void add(Runs& runs, int32_t token) {
    // From the longest down: a run of k + 1 tokens comes of the run of k before this token.
    for (size_t k = static_cast<size_t>(order); k-- > 0;) {
      const uint32_t parent = runs[k];
      if (parent == kNowhere) continue;
      const uint32_t child = edges.find_or_add(parent, token, static_cast<uint32_t>(nodes.size()));
      if (child == nodes.size()) {
        if (nodes.size() == kMaxNodes)
          fail(Code::kResourceExhausted, "[NgramModel::count] more than {} different n-grams; choose a lower order or a shorter text", kMaxNodes);
        nodes.emplace_back();
        ++nodes[parent].different;
      }
      ++nodes[parent].followed;
      ++nodes[child].count;
      if (k + 1 < static_cast<size_t>(order)) runs[k + 1] = child;
    }
  }

  /// p[n] of the token by n-grams of n tokens; `runs` moves on to it.
  void predict(Runs& runs, int32_t token, std::span<double> p) const {
    Runs next = no_runs();
    p[0] = 1.0 / static_cast<double>(vocab_size);
    for (size_t k = 0; k < static_cast<size_t>(order); ++k) {
      p[k + 1] = p[k];
      if (runs[k] == kNowhere) continue;
      const Node& node = nodes[runs[k]];
      const uint32_t child = node.followed > 0 ? edges.find(runs[k], token) : kNowhere;
      if (node.followed > 0) {
        const double count = child == kNowhere ? 0 : nodes[child].count, different = node.different;
        p[k + 1] = (count + different * p[k]) / (node.followed + different);
      }
      if (k + 1 < next.size()) next[k + 1] = child;
    }
    runs = next;
  }
};

NgramModel NgramModel::count(std::span<const int32_t> tokens, const NgramOptions& options) {
  require(options.order >= 1 && options.order <= kMaxNgramOrder, "[NgramModel::count] order is {}; expected 1 to {}", options.order, kMaxNgramOrder);
  require(options.vocab_size >= 1 && options.vocab_size <= INT32_MAX, "[NgramModel::count] vocab_size is {}; expected 1 to {}",
          options.vocab_size, INT32_MAX);
  require(tokens.size() < UINT32_MAX, "[NgramModel::count] {} tokens; expected fewer than {}", tokens.size(), UINT32_MAX);
  auto impl = std::make_shared<Impl>();
  impl->order = options.order;
  impl->vocab_size = options.vocab_size;
  Runs runs = Impl::no_runs();
  for (size_t t = 0; t < tokens.size(); ++t) {
    if (t % kStride == 0) {
      if (options.stop != nullptr && options.stop->stop_requested()) fail(Code::kCancelled, "[NgramModel::count] stopped on request");
      if (options.progress) options.progress(t, tokens.size());
    }
    impl->check_token(tokens[t], "count");
    impl->add(runs, tokens[t]);
  }
  return NgramModel(std::move(impl));
}

int64_t NgramModel::order() const noexcept { return impl_->order; }
int64_t NgramModel::vocab_size() const noexcept { return impl_->vocab_size; }

double NgramModel::probability(std::span<const int32_t> context, int32_t token) const {
  Runs runs = Impl::no_runs();
  std::array<double, kMaxNgramOrder + 1> p{};
  const std::span<const int32_t> last = context.last(std::min(context.size(), static_cast<size_t>(impl_->order - 1)));
  for (const int32_t before : last) {
    impl_->check_token(before, "probability");
    impl_->predict(runs, before, p);
  }
  impl_->check_token(token, "probability");
  impl_->predict(runs, token, p);
  return p[static_cast<size_t>(impl_->order)];
}

std::vector<double> NgramModel::nats(std::span<const int32_t> tokens, const StopToken* stop) const {
  std::vector<double> sums(static_cast<size_t>(impl_->order) + 1, 0.0);
  std::array<double, kMaxNgramOrder + 1> p{};
  Runs runs = Impl::no_runs();
  for (size_t t = 0; t < tokens.size(); ++t) {
    if (t % kStride == 0 && stop != nullptr && stop->stop_requested()) fail(Code::kCancelled, "[NgramModel::nats] stopped on request");
    impl_->check_token(tokens[t], "nats");
    impl_->predict(runs, tokens[t], p);
    for (size_t n = 0; n < sums.size(); ++n) sums[n] -= std::log(p[n]);
  }
  return sums;
}

}  // namespace regard
