// What a training step promises besides its formulas: float against double, the same bits whatever runs it, no gradient through
// what is masked, memory, and the odd batches.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "kernels/reference/bf16.h"
#include "support/training_cases.h"

namespace regard::test {
namespace {

using nn::LossSum;
using nn::TokenBatch;
using nn::TrainingStep;
using nn::Transformer;
using nn::TransformerConfig;

constexpr TrainingStep kStep{.seed = 5, .step = 3, .loss_scale = 0.25};

struct Result {
  LossSum loss;
  std::vector<float> gradients;
};

template <class T>
std::vector<T> gradients_of(Transformer<T>& model) {
  const auto g = model.parameters().gradients();
  return {g.begin(), g.end()};
}

Result run(const TransformerConfig& config, const BatchData& data, int threads = 1, const TrainingStep& step = kStep) {
  ThreadPool pool(threads);
  Transformer<float> model(config, 1);
  Result r;
  r.loss = model.forward_backward(pool, data.view(), step);
  r.gradients = gradients_of(model);
  return r;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double norm_of(const std::vector<float>& a) {
  double sum = 0;
  for (float x : a) sum += double{x} * double{x};
  return std::sqrt(sum);
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - double{b[i]}) * (double{a[i]} - double{b[i]});
  return std::sqrt(sum);
}

class TrainingModel : public testing::TestWithParam<TrainingCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, TrainingModel, testing::ValuesIn(training_cases()), [](const auto& one) { return one.param.name; });

// Sums of a few hundred products each, through a few layers: errors of some 1e-6 of a parameter's gradient.
TEST_P(TrainingModel, FloatAgreesWithDouble) {
  const TrainingCase& c = GetParam();
  ThreadPool pool(1);
  Transformer<float> single(c.config, 1);
  Transformer<double> exact(c.config, 1);
  // Double starts from the rounded values.
  for (size_t i = 0; i < single.parameters().values().size(); ++i) exact.parameters().values()[i] = double{single.parameters().values()[i]};
  const LossSum a = single.forward_backward(pool, c.data.view(), kStep), b = exact.forward_backward(pool, c.data.view(), kStep);
  EXPECT_EQ(a.counted, b.counted);
  EXPECT_GT(b.nats, 0);
  EXPECT_NEAR(a.nats, b.nats, 1e-5 * b.nats);
  EXPECT_NEAR(a.objective, b.objective, 1e-5 * std::abs(b.objective));
  double all = 0;
  for (const double g : exact.parameters().gradients()) all += g * g;
  for (size_t p = 0; p < exact.parameters().parameters().size(); ++p) {
    const nn::Parameter& parameter = exact.parameters().parameters()[p];
    double error = 0, norm = 0;
    for (int64_t i = 0; i < parameter.size; ++i) {
      const double x = exact.parameters().gradient(static_cast<int>(p))[i], y = double{single.parameters().gradient(static_cast<int>(p))[i]};
      error += (x - y) * (x - y);
      norm += x * x;
    }
    // Gradients that cancel to nothing (those of key biases) are as exact as what cancels.
    EXPECT_LE(std::sqrt(error), 2e-5 * std::sqrt(norm) + 2e-6 * std::sqrt(all)) << parameter.name;
  }
  // Evaluation is the forward pass without dropout.
  TransformerConfig plain = c.config;
  plain.embedding_dropout = plain.residual_dropout = plain.attention_dropout = 0;
  Transformer<float> undropped(plain, 1);
  const LossSum e = single.evaluate(pool, c.data.view()), u = undropped.forward_backward(pool, c.data.view(), kStep);
  EXPECT_EQ(e.nats, u.nats);
  EXPECT_EQ(e.objective, u.objective);
  EXPECT_EQ(e.correct, u.correct);
  const bool drops = c.config.embedding_dropout + c.config.residual_dropout + c.config.attention_dropout > 0;
  if (drops) {
    EXPECT_NE(e.nats, a.nats) << "dropout did nothing in training, or something in evaluation";
  }
}

TEST_P(TrainingModel, BitsDoNotDependOnThreadsOrRecomputation) {
  const TrainingCase& c = GetParam();
  const Result expected = run(c.config, c.data);
  ASSERT_GT(norm_of(expected.gradients), 0);
  for (const int threads : {2, 3, 8}) {
    const Result r = run(c.config, c.data, threads);
    EXPECT_TRUE(same_bits(r.gradients, expected.gradients)) << threads << " threads";
    EXPECT_EQ(r.loss.objective, expected.loss.objective);
  }
  for (const nn::Recompute recompute : {nn::Recompute::kNone, nn::Recompute::kFull}) {
    TransformerConfig config = c.config;
    config.recompute = recompute;
    EXPECT_TRUE(same_bits(run(config, c.data, 2).gradients, expected.gradients)) << "policy " << static_cast<int>(recompute);
  }
}

// Three sequences go through a layer together, or two and then one.
void expect_groups_change_nothing(const TransformerConfig& whole, const BatchData& data) {
  const Result expected = run(whole, data);
  for (const nn::Recompute recompute : {nn::Recompute::kNone, nn::Recompute::kCheap, nn::Recompute::kFull}) {
    TransformerConfig cut = whole;
    cut.group_rows = 1;
    cut.recompute = recompute;
    const Result r = run(cut, data, 2);
    EXPECT_EQ(r.loss.objective, expected.loss.objective);
    if (whole.position == nn::PositionKind::kT5)  // a sum of the groups' sums
      EXPECT_LE(distance(r.gradients, expected.gradients), 1e-6 * norm_of(expected.gradients));
    else
      EXPECT_TRUE(same_bits(r.gradients, expected.gradients)) << "policy " << static_cast<int>(recompute);
  }
}

TEST_P(TrainingModel, BitsDoNotDependOnGroups) { expect_groups_change_nothing(GetParam().config, GetParam().data); }

// A step in micro-batches, one sequence each, adds up to the whole: dropout knows which sequence of the step it is in.
TEST_P(TrainingModel, MicroBatchesAddUpToTheStep) {
  const TrainingCase& c = GetParam();
  if (c.config.mask.depends_on_batch()) GTEST_SKIP() << "a mask with a list per sequence fits one batch alone";
  const Result whole = run(c.config, c.data);
  ThreadPool pool(2);
  Transformer<float> model(c.config, 1);
  LossSum sum;
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 1}, {1, 3}}) {
    const BatchData part = c.data.part(begin, end);
    const LossSum loss = model.forward_backward(pool, part.view(), kStep);
    sum.objective += loss.objective;
    sum.counted += loss.counted;
  }
  EXPECT_EQ(sum.counted, whole.loss.counted);
  EXPECT_NEAR(sum.objective, whole.loss.objective, 1e-6 * std::abs(whole.loss.objective));
  EXPECT_LE(distance(gradients_of(model), whole.gradients), 1e-6 * norm_of(whole.gradients));
}

// A plan that is used again takes the numbers that T5's table and Transformer-XL's vectors hold by then.
class TrainingPlan : public testing::TestWithParam<nn::PositionKind> {};
INSTANTIATE_TEST_SUITE_P(Positions, TrainingPlan, testing::Values(nn::PositionKind::kT5, nn::PositionKind::kXl),
                         [](const auto& one) { return one.param == nn::PositionKind::kT5 ? "t5" : "xl"; });

TEST_P(TrainingPlan, TheNumbersOfTheStepAreUsed) {
  TransformerConfig config = small_config();
  config.position = GetParam();
  config.t5_buckets = 6;
  config.t5_max_distance = 8;
  const BatchData data = random_batch(config, 3, 9);
  ThreadPool pool(2);
  Transformer<float> used(config, 1), fresh(config, 1);
  const Result first = run(config, data);
  used.forward_backward(pool, data.view(), kStep);
  for (Transformer<float>* model : {&used, &fresh})
    for (float& x : model->parameters().values()) x *= 1.5f;
  used.parameters().zero_gradients();
  const LossSum again = used.forward_backward(pool, data.view(), kStep), expected = fresh.forward_backward(pool, data.view(), kStep);
  EXPECT_EQ(again.objective, expected.objective);
  EXPECT_TRUE(same_bits(gradients_of(used), gradients_of(fresh)));
  EXPECT_NE(expected.objective, first.loss.objective);
}

// ---- bf16 operands

class Bf16TrainingModel : public TrainingModel {
 protected:
  void SetUp() override {
    if (kernels::kernels().gemm_bf16 == nullptr) GTEST_SKIP() << isa_name(kernels::kernels().isa) << " has no bf16 dot products";
  }
};
INSTANTIATE_TEST_SUITE_P(Cases, Bf16TrainingModel, testing::ValuesIn(training_cases()), [](const auto& one) { return one.param.name; });

TransformerConfig in_bf16(TransformerConfig config) {
  config.precision = nn::training::GemmPrecision::kBF16;
  return config;
}

// Every operand is rounded once more in each layer. How far that carries depends on the model (sharp softmaxes most of all), so the
// measure is what rounding the parameters alone does to it.
TEST_P(Bf16TrainingModel, GradientIsNearThatOfF32) {
  const TrainingCase& c = GetParam();
  const Result exact = run(c.config, c.data), got = run(in_bf16(c.config), c.data);
  ThreadPool pool(1);
  Transformer<float> rounded(c.config, 1);
  for (float& x : rounded.parameters().values()) x = kernels::reference::spec_bf16(x);
  rounded.forward_backward(pool, c.data.view(), kStep);
  const double of_parameters = distance(gradients_of(rounded), exact.gradients);
  EXPECT_EQ(got.loss.counted, exact.loss.counted);
  EXPECT_NEAR(got.loss.nats, exact.loss.nats, 0.01 * std::abs(exact.loss.nats));
  EXPECT_LE(distance(got.gradients, exact.gradients), 2.5 * of_parameters);
  EXPECT_FALSE(same_bits(got.gradients, exact.gradients)) << "nothing was rounded";
}

TEST_P(Bf16TrainingModel, BitsDoNotDependOnThreadsOrRecomputation) {
  const TrainingCase& c = GetParam();
  const Result expected = run(in_bf16(c.config), c.data);
  for (const int threads : {2, 3, 8}) {
    const Result r = run(in_bf16(c.config), c.data, threads);
    EXPECT_TRUE(same_bits(r.gradients, expected.gradients)) << threads << " threads";
    EXPECT_EQ(r.loss.objective, expected.loss.objective);
  }
  for (const nn::Recompute recompute : {nn::Recompute::kNone, nn::Recompute::kFull}) {
    TransformerConfig config = in_bf16(c.config);
    config.recompute = recompute;
    EXPECT_TRUE(same_bits(run(config, c.data, 2).gradients, expected.gradients)) << "policy " << static_cast<int>(recompute);
  }
}

TEST_P(Bf16TrainingModel, BitsDoNotDependOnGroups) { expect_groups_change_nothing(in_bf16(GetParam().config), GetParam().data); }

TEST(TrainingPrecision, Bf16IsRefusedWhereItIsNot) {
  const TrainingCase c = training_cases().front();
  const auto refused = [&](auto&& make) {
    try {
      make();
      return std::string();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kUnsupported);
      return std::string(error.what());
    }
  };
  EXPECT_NE(refused([&] { Transformer<double>(in_bf16(c.config), 1); }).find("bf16"), std::string::npos);
  if (kernels::kernels().gemm_bf16 == nullptr) {
    EXPECT_NE(refused([&] { Transformer<float>(in_bf16(c.config), 1); }).find("avx512_bf16"), std::string::npos);
  }
}

// ---- what is masked

// With labels up to a token alone, tokens behind it change no logit before them and no gradient, to the bit; a token before it
// changes both.
TEST(TrainingMask, LetsNothingThroughFromBehind) {
  for (const bool llama : {false, true}) {
    TransformerConfig config = llama ? llama_config() : small_config();
    config.attention_dropout = config.residual_dropout = 0.2;
    const int64_t last = 4;
    BatchData data = random_batch(config, 2, 9);
    for (int64_t i = 0; i < 18; ++i)
      if (i % 9 > last) data.labels[static_cast<size_t>(i)] = nn::kIgnoredLabel;
    const auto logits = [&](const BatchData& d) {
      ThreadPool pool(2);
      Transformer<float> model(config, 1);
      std::vector<float> y(static_cast<size_t>(18 * config.vocab_size));
      model.logits(pool, d.view(), y);
      std::vector<float> seen;
      for (int64_t i = 0; i < 18; ++i)
        if (i % 9 <= last) seen.insert(seen.end(), y.begin() + i * config.vocab_size, y.begin() + (i + 1) * config.vocab_size);
      return seen;
    };
    // Tokens that stand nowhere else, so that their own embeddings are another question.
    BatchData changed = data;
    for (int64_t i = 0; i < 18; ++i) {
      auto& token = data.tokens[static_cast<size_t>(i)];
      if (i % 9 <= last) token = token % 8;
      else token = 9;
      changed.tokens[static_cast<size_t>(i)] = i % 9 <= last ? token : 10;
    }
    EXPECT_TRUE(same_bits(logits(data), logits(changed)));
    const std::vector<float> a = run(config, data).gradients, b = run(config, changed).gradients;
    EXPECT_TRUE(a == b) << "a token that may not be seen has a gradient or changes one";
    changed = data;
    changed.tokens[0] = (changed.tokens[0] + 1) % 8;
    EXPECT_FALSE(same_bits(logits(data), logits(changed)));
    EXPECT_FALSE(run(config, changed).gradients == a);
  }
}

// NaN in the embedding of a token that is masked everywhere: not one NaN in what other tokens get.
TEST(TrainingMask, NanBehindStaysThere) {
  const TransformerConfig config = llama_config();
  ThreadPool pool(1);
  Transformer<float> model(config, 1), poisoned(config, 1);
  for (int64_t i = 0; i < config.hidden_size; ++i) poisoned.parameters().value(0)[10 * config.hidden_size + i] = NAN;
  BatchData data = random_batch(config, 2, 9);
  for (size_t i = 0; i < data.tokens.size(); ++i) data.tokens[i] = i % 9 > 4 ? 10 : data.tokens[i] % 10;
  std::vector<float> expected(18 * 11), found(18 * 11);
  model.logits(pool, data.view(), expected);
  poisoned.logits(pool, data.view(), found);
  for (size_t i = 0; i < found.size(); ++i) {
    if (i / 11 % 9 <= 4) {
      EXPECT_EQ(found[i], expected[i]);
    } else {
      EXPECT_TRUE(std::isnan(found[i]));
    }
  }
}

// Padding is not even read: ids out of range, and NaN in their embeddings, change nothing.
TEST(TrainingMask, PaddingIsNotRead) {
  for (const TrainingCase& c : training_cases()) {
    if (c.name != "batch_lengths" && c.name != "encoder_decoder" && c.name != "encoder_position_6") continue;
    BatchData other = c.data;
    for (int64_t i = 0; i < other.batch * other.seq; ++i)
      if (i % other.seq >= other.lengths[static_cast<size_t>(i / other.seq)]) {
        other.tokens[static_cast<size_t>(i)] = -7;
        other.labels[static_cast<size_t>(i)] = 2;
      }
    for (int64_t i = 0; i < other.batch * other.source_seq; ++i)
      if (i % other.source_seq >= other.source_lengths[static_cast<size_t>(i / other.source_seq)]) other.source[static_cast<size_t>(i)] = 1000000;
    EXPECT_TRUE(same_bits(run(c.config, c.data).gradients, run(c.config, other).gradients)) << c.name;
  }
}

// A packed row is its documents one by one.
TEST(TrainingMask, DocumentsAreSequencesOfTheirOwn) {
  const TransformerConfig config = llama_config();
  BatchData packed = random_batch(config, 1, 9);
  for (int i = 0; i < 9; ++i) {
    packed.documents.push_back(i / 3);
    packed.encoding_positions.push_back(i % 3);
  }
  BatchData apart = random_batch(config, 1, 9);
  apart.batch = 3;
  apart.seq = 3;
  ThreadPool pool(1);
  Transformer<float> model(config, 1);
  std::vector<float> a(9 * 11), b(9 * 11);
  model.logits(pool, packed.view(), a);
  model.logits(pool, apart.view(), b);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5);  // keys stand in other tiles' lanes
  packed.documents.clear();
  model.logits(pool, packed.view(), a);
  EXPECT_GT(std::abs(a.back() - b.back()), 1e-3);
}

// ---- odd batches

TEST(TrainingOddBatches, WithoutLabelsThereIsNoGradient) {
  BatchData data = random_batch(small_config(), 2, 5);
  std::fill(data.labels.begin(), data.labels.end(), nn::kIgnoredLabel);
  const Result r = run(small_config(), data);
  EXPECT_EQ(r.loss.counted, 0);
  EXPECT_EQ(r.loss.objective, 0);
  EXPECT_EQ(norm_of(r.gradients), 0);
}

TEST(TrainingOddBatches, EmptySequencesAndNone) {
  BatchData data = random_batch(small_config(), 2, 5);
  data.lengths = {0, 0};
  EXPECT_EQ(run(small_config(), data).loss.counted, 0);
  EXPECT_EQ(run(small_config(), random_batch(small_config(), 0, 5)).loss.counted, 0);
  EXPECT_EQ(run(small_config(), random_batch(small_config(), 3, 0)).loss.counted, 0);
}

// Lengths around tiles of keys (256) and of the loss's chunks; one token; a step over many rows.
TEST(TrainingOddBatches, AnyLength) {
  for (const int64_t seq : {1, 2, 255, 256, 257, 300}) {
    TransformerConfig config = llama_config();
    config.max_positions = 512;
    config.num_layers = 1;
    config.attention_dropout = 0.1;
    BatchData data = random_batch(config, 2, seq);
    data.labels[0] = 1;
    ThreadPool pool(2);
    Transformer<float> single(config, 1);
    Transformer<double> exact(config, 1);
    const LossSum a = single.forward_backward(pool, data.view(), kStep), b = exact.forward_backward(pool, data.view(), kStep);
    EXPECT_NEAR(a.nats, b.nats, 1e-5 * b.nats) << seq;
    double error = 0, norm = 0;
    for (size_t i = 0; i < exact.parameters().gradients().size(); ++i) {
      const double x = exact.parameters().gradients()[i], y = double{single.parameters().gradients()[i]};
      error += (x - y) * (x - y);
      norm += x * x;
    }
    EXPECT_LE(std::sqrt(error), 2e-5 * std::sqrt(norm)) << seq;
  }
}

// Right sequences are those whose labels all have the highest logit. Enough rows for several chunks of the loss (192 each), so that
// sequences of 10 lie across their borders.
TEST(TrainingExactMatch, IsThatOfTheLogits) {
  TransformerConfig config = llama_config();
  config.vocab_size = 1500;
  config.num_layers = 1;
  constexpr int64_t kBatch = 90, kSeq = 10;
  BatchData data = random_batch(config, kBatch, kSeq);
  for (int64_t b = 0; b < kBatch; ++b) data.lengths.push_back(b % 9 == 4 ? 0 : b % 2 == 0 ? kSeq : 1 + b % kSeq);
  ThreadPool pool(2);
  Transformer<float> model(config, 1);
  std::vector<float> logits(static_cast<size_t>(kBatch * kSeq * config.vocab_size));
  model.logits(pool, data.view(), logits);
  int64_t sequences = 0, exact = 0, counted = 0, correct = 0;
  for (int64_t b = 0; b < kBatch; ++b) {
    int64_t asked = 0, right = 0;
    for (int64_t t = 0; t < kSeq; ++t) {
      const auto at = static_cast<size_t>(b * kSeq + t);
      const auto row = logits.begin() + (b * kSeq + t) * config.vocab_size;
      const auto best = static_cast<int32_t>(std::max_element(row, row + config.vocab_size) - row);
      // A third of the sequences is asked nothing but what the model says, a third gets one such label wrong, the others are as they were drawn.
      int32_t& label = data.labels[at];
      if (label != nn::kIgnoredLabel && b % 3 < 2) label = b % 3 == 1 && t == b % kSeq ? (best + 1) % static_cast<int32_t>(config.vocab_size) : best;
      if (label == nn::kIgnoredLabel || t >= data.lengths[static_cast<size_t>(b)]) continue;
      ++asked;
      right += label == best ? 1 : 0;
    }
    sequences += asked > 0 ? 1 : 0;
    exact += asked > 0 && right == asked ? 1 : 0;
    counted += asked;
    correct += right;
  }
  ASSERT_GT(counted, 2 * 192);
  ASSERT_GT(exact, 10);
  ASSERT_LT(exact, sequences - 10);
  const LossSum e = model.evaluate(pool, data.view());
  EXPECT_EQ(e.sequences, sequences);
  EXPECT_EQ(e.exact, exact);
  EXPECT_EQ(e.counted, counted);
  EXPECT_EQ(e.correct, correct);
  const LossSum f = model.forward_backward(pool, data.view(), kStep);
  EXPECT_EQ(f.exact, e.exact);
}

// Gradients are added to what is there, once per call, whatever shapes come one after the other.
TEST(TrainingOddBatches, ShapesMayAlternate) {
  const TransformerConfig config = llama_config();
  ThreadPool pool(1);
  Transformer<float> model(config, 1);
  const BatchData small = random_batch(config, 1, 4), large = random_batch(config, 3, 16);
  const Result expected_small = run(config, small), expected_large = run(config, large);
  for (int i = 0; i < 2; ++i) {
    model.parameters().zero_gradients();
    model.forward_backward(pool, small.view(), kStep);
    EXPECT_TRUE(same_bits(gradients_of(model), expected_small.gradients));
    model.parameters().zero_gradients();
    model.forward_backward(pool, large.view(), kStep);
    EXPECT_TRUE(same_bits(gradients_of(model), expected_large.gradients));
  }
}

TEST(TrainingOddBatches, AreRefusedByName) {
  ThreadPool pool(1);
  Transformer<float> model(small_config(), 1);
  const auto message = [&](auto change) {
    BatchData data = random_batch(small_config(), 2, 5);
    change(data);
    try {
      model.forward_backward(pool, data.view(), kStep);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kInvalidArgument);
      return std::string(e.what());
    }
    return std::string("nothing");
  };
  EXPECT_NE(message([](BatchData& d) { d.tokens[7] = 11; }).find("token 2 of sequence 1 is 11; the vocabulary has 11"), std::string::npos);
  EXPECT_NE(message([](BatchData& d) { d.tokens[0] = -1; }).find("is -1"), std::string::npos);
  EXPECT_NE(message([](BatchData& d) { d.labels[0] = 11; }).find("a label is 11"), std::string::npos);
  EXPECT_NE(message([](BatchData& d) { d.labels[0] = -1; }).find("-100"), std::string::npos);
  EXPECT_NE(message([](BatchData& d) { d.lengths = {5, 6}; }).find("length is 6"), std::string::npos);
  EXPECT_NE(message([](BatchData& d) { d.lengths = {5}; }).find("1 input lengths for 2"), std::string::npos);
  EXPECT_NE(message([](BatchData& d) { d.tokens.pop_back(); }).find("9 input tokens"), std::string::npos);
  EXPECT_NE(message([](BatchData& d) { d = random_batch(small_config(), 1, 17); }).find("17 tokens; this model has 16"), std::string::npos);
  EXPECT_NE(message([](BatchData& d) { d.encoding_positions.assign(10, 16); }).find("encoding position is 16"), std::string::npos);
  EXPECT_NE(message([](BatchData& d) { d.source_seq = 1; d.source = {1, 1}; }).find("without cross-attention"), std::string::npos);
}

TEST(TrainingOddBatches, StopEndsAStep) {
  StopToken stop;
  stop.request_stop();
  ThreadPool pool(2);
  Transformer<float> model(small_config(), 1);
  const BatchData data = random_batch(small_config(), 2, 9);
  try {
    model.forward_backward(pool, data.view(), kStep, &stop);
    FAIL() << "not stopped";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kCancelled);
  }
}

// ---- shape and memory

TransformerConfig baby_config() {
  TransformerConfig c;
  c.vocab_size = 65;
  c.hidden_size = 384;
  c.num_layers = c.num_q_heads = 6;
  c.intermediate_size = 1536;
  c.max_positions = 256;
  return c;
}

TEST(TrainingMemory, OfABabyGptIsWithinTheBudget) {
  ThreadPool pool(2);
  Transformer<float> model(baby_config(), 1);
  EXPECT_EQ(model.parameters().count(), 10770816);  // 6 layers, and 65 + 256 vectors
  const BatchData data = random_batch(baby_config(), 16, 256);
  const LossSum loss = model.evaluate(pool, data.view());
  EXPECT_NEAR(loss.nats / static_cast<double>(loss.counted), std::log(65.0), 0.1);
  const auto plan = model.memory();
  EXPECT_LE(plan.saved + plan.scratch, size_t{400'000'000}) << plan.saved << " saved, " << plan.scratch << " scratch";
  RecordProperty("saved", std::to_string(plan.saved));
  RecordProperty("scratch", std::to_string(plan.scratch));
  if (kernels::kernels().gemm_bf16 == nullptr) return;
  Transformer<float> half(in_bf16(baby_config()), 1);
  half.evaluate(pool, data.view());
  EXPECT_LE(half.memory().saved + half.memory().scratch, size_t{220'000'000}) << half.memory().saved << " saved, " << half.memory().scratch << " scratch";
}

TEST(TrainingNames, AreThoseOfTheFamilies) {
  const auto names = [](const TransformerConfig& config) {
    Transformer<float> model(config, 1);
    std::vector<std::string> all;
    for (const nn::Parameter& p : model.parameters().parameters()) {
      std::string text = p.name + " [";
      for (size_t i = 0; i < p.shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(p.shape[i]);
      all.push_back(text + (p.decay == nn::WeightDecay::kApplied ? "]" : "] -"));
    }
    return all;
  };
  TransformerConfig one = small_config();
  one.num_layers = 1;
  EXPECT_EQ(names(one), (std::vector<std::string>{
                            "transformer.wte.weight [11, 12]", "transformer.wpe.weight [16, 12]", "transformer.h.0.ln_1.weight [12] -",
                            "transformer.h.0.ln_1.bias [12] -", "transformer.h.0.attn.c_attn.weight [12, 36]", "transformer.h.0.attn.c_attn.bias [36] -",
                            "transformer.h.0.attn.c_proj.weight [12, 12]", "transformer.h.0.attn.c_proj.bias [12] -",
                            "transformer.h.0.ln_2.weight [12] -", "transformer.h.0.ln_2.bias [12] -", "transformer.h.0.mlp.c_fc.weight [12, 20]",
                            "transformer.h.0.mlp.c_fc.bias [20] -", "transformer.h.0.mlp.c_proj.weight [20, 12]",
                            "transformer.h.0.mlp.c_proj.bias [12] -", "transformer.ln_f.weight [12] -", "transformer.ln_f.bias [12] -"}));
  one = llama_config();
  one.num_layers = 1;
  EXPECT_EQ(names(one), (std::vector<std::string>{
                            "model.embed_tokens.weight [11, 16]", "model.layers.0.input_layernorm.weight [16] -",
                            "model.layers.0.self_attn.q_proj.weight [16, 16]", "model.layers.0.self_attn.k_proj.weight [8, 16]",
                            "model.layers.0.self_attn.v_proj.weight [8, 16]", "model.layers.0.self_attn.o_proj.weight [16, 16]",
                            "model.layers.0.post_attention_layernorm.weight [16] -", "model.layers.0.mlp.gate_proj.weight [20, 16]",
                            "model.layers.0.mlp.up_proj.weight [20, 16]", "model.layers.0.mlp.down_proj.weight [16, 20]", "model.norm.weight [16] -",
                            "lm_head.weight [11, 16]"}));
}

}  // namespace
}  // namespace regard::test
