// Prediction by counting: what a text's last few tokens were followed by in another text. The baseline that a trained model has to beat.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "regard/export.h"
#include "regard/stop_token.h"

namespace regard {

inline constexpr int64_t kMaxNgramOrder = 8;

struct NgramOptions {
  int64_t order = 5;       ///< tokens of an n-gram, 1 to kMaxNgramOrder: the last one is predicted from those before it
  int64_t vocab_size = 0;  ///< tokens are in [0, vocab_size)
  const StopToken* stop = nullptr;
  /// Called now and then with tokens done and in all.
  std::function<void(uint64_t done, uint64_t total)> progress{};
};

/// An n-gram model with interpolated Witten-Bell smoothing. With c(h w) the times that w followed h, c(h) their sum over w, T(h) the
/// number of different w, and h' being h without its first token:
///
///     p(w | h) = (c(h w) + T(h) p(w | h')) / (c(h) + T(h)),    p(w | h) = p(w | h') for h that was never seen,
///
/// down to the empty h, whose p(w | h') is 1 / vocab_size.
///
/// Immutable. Threads: any number at once. Memory: 50 to 80 bytes for each different n-gram of every order.
/// Source: Witten, Bell 1991, "The zero-frequency problem", method C; interpolated as in Chen, Goodman 1998, "An empirical study of
/// smoothing techniques for language modeling", section 2.
class REGARD_API NgramModel {
 public:
  /// Counts in `tokens`. Cost: O(order) per token. Errors: kInvalidArgument for an order or token outside its range;
  /// kResourceExhausted for more than 2^31 different n-grams; kCancelled.
  static NgramModel count(std::span<const int32_t> tokens, const NgramOptions& options);

  int64_t order() const noexcept;
  int64_t vocab_size() const noexcept;

  /// p(token | the last order - 1 tokens of `context`).
  double probability(std::span<const int32_t> context, int32_t token) const;

  /// -log p in nats, summed over all of `tokens`, by each order at once: [0] the uniform distribution, [1] unigrams, up to
  /// [order()]. The first tokens are predicted from the few that stand before them. Errors: kInvalidArgument for a token outside
  /// the vocabulary; kCancelled.
  std::vector<double> nats(std::span<const int32_t> tokens, const StopToken* stop = nullptr) const;

  struct Impl;
  explicit NgramModel(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace regard
