#include "train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "base/math.h"

namespace regard::train_loop {
namespace {

// Elements of one item of work: some microseconds, and a sum whose order nothing changes.
constexpr int64_t kPiece = 16384;

struct AdamWNumbers {
  float beta1, rest1, beta2, rest2, root_correction, epsilon, step_size, keep, scale;
};

void adamw(const AdamWNumbers& n, int64_t size, float* value, const float* gradient, float* first, float* second) {
  for (int64_t i = 0; i < size; ++i) {
    const float g = gradient[i] * n.scale;
    first[i] = n.beta1 * first[i] + n.rest1 * g;
    second[i] = n.beta2 * second[i] + n.rest2 * g * g;
    value[i] = value[i] * n.keep - n.step_size * (first[i] / (std::sqrt(second[i]) * n.root_correction + n.epsilon));
  }
}

void momentum_step(float momentum, float step_size, float keep, float scale, int64_t size, float* value, const float* gradient, float* first) {
  for (int64_t i = 0; i < size; ++i) {
    first[i] = momentum * first[i] + gradient[i] * scale;
    value[i] = value[i] * keep - step_size * first[i];
  }
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
    double sum = 0;
    for (int64_t k = piece.begin; k < piece.begin + piece.size; ++k) sum += static_cast<double>(gradients[k]) * static_cast<double>(gradients[k]);
    sums_[static_cast<size_t>(i)] = sum;
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
  const AdamWNumbers numbers{static_cast<float>(config_.beta1),
                             static_cast<float>(1 - config_.beta1),
                             static_cast<float>(config_.beta2),
                             static_cast<float>(1 - config_.beta2),
                             static_cast<float>(1 / std::sqrt(correction(config_.beta2))),
                             static_cast<float>(config_.epsilon),
                             static_cast<float>(learning_rate / correction(config_.beta1)),
                             0,
                             static_cast<float>(gradient_scale)};
  pool.for_each(static_cast<int64_t>(pieces_.size()), [&](int64_t i, int) {
    const Piece& piece = pieces_[static_cast<size_t>(i)];
    const double decay = piece.decay == nn::WeightDecay::kApplied ? config_.weight_decay : 0;
    const auto keep = static_cast<float>(1 - learning_rate * decay);
    const int64_t b = piece.begin;
    if (config_.kind == TrainConfig::Optimizer::Kind::kAdamW) {
      AdamWNumbers own = numbers;
      own.keep = keep;
      adamw(own, piece.size, values + b, gradients + b, first + b, second + b);
    } else {
      momentum_step(static_cast<float>(config_.momentum), static_cast<float>(learning_rate), keep, static_cast<float>(gradient_scale), piece.size,
                    values + b, gradients + b, first + b);
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
