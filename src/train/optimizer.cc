#include "train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "base/math.h"
#include "kernels/registry.h"

namespace regard::train_loop {
namespace {

// Elements of one item of work: some microseconds, and a sum whose order nothing changes.
constexpr int64_t kPiece = 16384;

// The sum of squares in f64: eight chains, which the compiler makes vectors of, added up in their order.
double sum_of_squares(const float* x, int64_t n) {
  constexpr int64_t kChains = 8;
  double chain[kChains] = {};
  int64_t i = 0;
  for (; i + kChains <= n; i += kChains)
    for (int64_t k = 0; k < kChains; ++k) chain[k] += static_cast<double>(x[i + k]) * static_cast<double>(x[i + k]);
  for (int64_t k = 0; i + k < n; ++k) chain[k] += static_cast<double>(x[i + k]) * static_cast<double>(x[i + k]);
  double sum = 0;
  for (const double c : chain) sum += c;
  return sum;
}

}  // namespace

Optimizer::Optimizer(const TrainConfig::Optimizer& config, nn::ParameterStore<float>& parameters) : config_(config), parameters_(parameters) {
  for (const nn::Parameter& parameter : parameters.parameters()) {
    for (int64_t done = 0; done < parameter.size; done += kPiece) {
      pieces_.push_back({parameter.offset + done, std::min(kPiece, parameter.size - done), parameter.decay});
    }
  }
  sums_.resize(pieces_.size());
}

double Optimizer::gradient_norm(ThreadPool& pool) {
  const float* gradients = parameters_.gradients().data();
  pool.for_each(static_cast<int64_t>(pieces_.size()), [&](int64_t i, int) {
    const Piece& piece = pieces_[static_cast<size_t>(i)];
    sums_[static_cast<size_t>(i)] = sum_of_squares(gradients + piece.begin, piece.size);
  });
  double sum = 0;
  for (const double s : sums_) sum += s;
  return std::sqrt(sum);
}

bool Optimizer::values_are_finite(ThreadPool& pool) {
  const float* values = parameters_.values().data();
  pool.for_each(static_cast<int64_t>(pieces_.size()), [&](int64_t i, int) {
    const Piece& piece = pieces_[static_cast<size_t>(i)];
    double bad = 0;
    for (int64_t k = piece.begin; k < piece.begin + piece.size; ++k) bad += std::isfinite(values[k]) ? 0 : 1;
    sums_[static_cast<size_t>(i)] = bad;
  });
  return std::all_of(sums_.begin(), sums_.end(), [](double bad) { return bad == 0; });
}

void Optimizer::update(ThreadPool& pool, int64_t step, double learning_rate, double gradient_scale) {
  float* values = parameters_.values().data();
  const float* gradients = parameters_.gradients().data();
  float* first = parameters_.first_moments().data();
  float* second = parameters_.second_moments().data();
  const auto t = static_cast<double>(step);
  const auto correction = [&](double beta) { return beta == 0 ? 1.0 : 1 - math::pow(beta, t); };
  const kernels::TrainingKernels& kernel = *kernels::kernels().training;
  pool.for_each(static_cast<int64_t>(pieces_.size()), [&](int64_t i, int) {
    const Piece& piece = pieces_[static_cast<size_t>(i)];
    const double decay = piece.decay == nn::WeightDecay::kApplied ? config_.weight_decay : 0;
    const int64_t b = piece.begin;
    if (config_.kind == TrainConfig::Optimizer::Kind::kAdamW) {
      const kernels::AdamWStep adamw{.rate = learning_rate,
                                     .beta1 = config_.beta1,
                                     .beta2 = config_.beta2,
                                     .eps = config_.epsilon,
                                     .decay = decay,
                                     .correction1 = correction(config_.beta1),
                                     .correction2 = correction(config_.beta2),
                                     .gradient_factor = gradient_scale};
      kernel.adamw(adamw, gradients + b, piece.size, values + b, first + b, second + b);
    } else {
      const kernels::SgdStep sgd{.rate = learning_rate, .momentum = config_.momentum, .decay = decay, .gradient_factor = gradient_scale};
      kernel.sgd(sgd, gradients + b, piece.size, values + b, first + b);
    }
  });
}

WeightAverage::WeightAverage(double decay, nn::ParameterStore<float>& parameters)
    : decay_(decay), parameters_(parameters), average_(static_cast<size_t>(parameters.size())) {
  std::copy(parameters.values().begin(), parameters.values().end(), average_.begin());
}

void WeightAverage::update(ThreadPool& pool) {
  const auto keep = static_cast<float>(decay_), take = static_cast<float>(1 - decay_);
  const float* values = parameters_.values().data();
  const int64_t size = parameters_.size();
  pool.for_each((size + kPiece - 1) / kPiece, [&](int64_t i, int) {
    const int64_t end = std::min(size, (i + 1) * kPiece);
    for (int64_t k = i * kPiece; k < end; ++k) average_[static_cast<size_t>(k)] = keep * average_[static_cast<size_t>(k)] + take * values[k];
  });
}

void WeightAverage::exchange() noexcept { std::swap_ranges(average_.begin(), average_.end(), parameters_.values().begin()); }

WeightAverage::Shown::Shown(WeightAverage* average) : average_(average) {
  if (average_ != nullptr) average_->exchange();
}
WeightAverage::Shown::~Shown() {
  if (average_ != nullptr) average_->exchange();
}

}  // namespace regard::train_loop
