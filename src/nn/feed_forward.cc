#include "nn/feed_forward.h"

#include <array>

#include "base/check.h"
#include "nn/rows.h"

namespace regard::nn {

FeedForward::FeedForward(Activation activation, Linear gate, Linear up, Linear down)
    : activation_(activation), gate_(std::move(gate)), up_(std::move(up)), down_(std::move(down)) {
  require(down_.in() == up_.out(), "[FeedForward] up gives {} values, down takes {}", up_.out(), down_.in());
  require(!gated() || (gate_.in() == up_.in() && gate_.out() == up_.out()), "[FeedForward] gate is {} x {}, up is {} x {}; expected the same shape",
          gate_.out(), gate_.in(), up_.out(), up_.in());
}

void FeedForward::forward(const Pass& pass, const float* x, float* y) const {
  const int64_t rows = pass.rows, width = up_.out();
  const TensorView<const float> input(x, {rows, up_.in()});
  float* up = pass.scratch.get(Scratch::kUp, rows * width);
  if (gated()) {
    float* gate = pass.scratch.get(Scratch::kGate, rows * width);
    const std::array<LinearOutput, 2> outputs = {LinearOutput{&gate_, {gate, {rows, width}}}, LinearOutput{&up_, {up, {rows, width}}}};
    forward_many(pass.pool, input, outputs, pass.stop);
    for_each_row(pass.pool, rows, width, [&](int64_t r) { activate_gated(activation_, gate + r * width, up + r * width, width, up + r * width); });
  } else {
    up_.forward(pass.pool, input, {up, {rows, width}}, pass.stop);
    for_each_row(pass.pool, rows, width, [&](int64_t r) { activate(activation_, up + r * width, width, up + r * width); });
  }
  down_.forward(pass.pool, {up, {rows, width}}, {y, {rows, down_.out()}}, pass.stop);
}

}  // namespace regard::nn
