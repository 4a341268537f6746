// Encoders and encoder-decoders that were trained open as models, with the trainer's bits: for every kind of positions, both
// placements of norms, and what else a configuration may say. Longer than a tile of keys on either side.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "model/trainable.h"
#include "regard/error.h"
#include "regard/model.h"
#include "runtime/thread_pool.h"
#include "support/trained_checkpoint.h"

namespace regard::train_test {
namespace {

using nn::Architecture;
using nn::Transformer;
using nn::TransformerConfig;
using testing_support::randomise;
using testing_support::save;
using testing_support::TempDir;

constexpr int64_t kSource = 275, kTokens = 262;

struct Case {
  std::string name;
  TransformerConfig config;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

TransformerConfig plain() {
  TransformerConfig c;
  c.architecture = Architecture::kEncoderDecoder;
  c.vocab_size = 37;
  c.hidden_size = 24;
  c.num_layers = 2;
  c.num_encoder_layers = 1;
  c.num_q_heads = 3;
  c.intermediate_size = 40;
  c.max_positions = kSource + 10;
  return c;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](std::string name, const std::function<void(TransformerConfig&)>& change) {
    TransformerConfig c = plain();
    change(c);
    all.push_back({std::move(name), c});
  };
  using nn::PositionKind;
  for (const auto& [name, position] : {std::pair{"none", PositionKind::kNone}, std::pair{"learned", PositionKind::kLearned},
                                       std::pair{"sinusoidal", PositionKind::kSinusoidal}, std::pair{"rope", PositionKind::kRope},
                                       std::pair{"alibi", PositionKind::kAlibi}, std::pair{"t5", PositionKind::kT5}, std::pair{"xl", PositionKind::kXl}}) {
    add(std::string("pre_") + name, [position](auto& c) { c.position = position; });
    add(std::string("post_") + name, [position](auto& c) {
      c.position = position;
      c.placement = nn::NormPlacement::kPost;
    });
  }
  add("t5_style", [](auto& c) {
    c.position = PositionKind::kT5;
    c.norm = nn::NormKind::kRms;
    c.biases = nn::Biases::kNone;
    c.feed_forward = nn::FeedForwardKind::kGated;
    c.attention_scale = 1;
    c.head = nn::Head::kUntied;
  });
  add("scaled_head", [](auto& c) { c.head_scale = 0.3; });
  add("grouped", [](auto& c) {
    c.hidden_size = 32;
    c.num_q_heads = 4;
    c.num_kv_heads = 2;
    c.num_layers = 1;
    c.num_encoder_layers = 3;
  });
  add("attention_only", [](auto& c) { c.intermediate_size = 0; });
  add("attention_only_post", [](auto& c) {
    c.intermediate_size = 0;
    c.placement = nn::NormPlacement::kPost;
  });
  add("masks", [](auto& c) {
    c.mask = Mask::parse("causal & window(40, 0)");
    c.encoder_mask = Mask::parse("window(20, 9)");
  });
  return all;
}

std::vector<int32_t> tokens_of(int64_t n, uint64_t seed, int64_t vocab) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<int32_t>(random_bits(seed, 0, static_cast<uint64_t>(i)) % static_cast<uint64_t>(vocab)));
  return tokens;
}

bool same(const std::vector<float>& a, const float* b) { return std::memcmp(a.data(), b, a.size() * sizeof(float)) == 0; }

class EncoderCheckpoint : public testing::TestWithParam<Case> {};

TEST_P(EncoderCheckpoint, AnEncoderHasTheLogitsOfTheTrainer) {
  TransformerConfig config = GetParam().config;
  config.architecture = Architecture::kEncoder;
  config.num_encoder_layers = 0;
  Transformer<float> trained(config, 1);
  randomise(trained);
  const TempDir directory;
  save(trained, directory);
  const std::vector<int32_t> tokens = tokens_of(kSource, 5, config.vocab_size);
  nn::TokenBatch batch;
  batch.batch = 1;
  batch.seq = kSource;
  batch.tokens = tokens;
  std::vector<float> wanted(tokens.size() * static_cast<size_t>(config.vocab_size)), got(wanted.size());
  ThreadPool pool(2);
  trained.logits(pool, batch, wanted);
  const Model model = Model::load(directory.path());
  EXPECT_EQ(model.info().architecture, "encoder");
  ForwardOptions options;
  options.chunk = 7;  // means nothing
  model.encode(tokens, options, got.data());
  EXPECT_TRUE(same(got, wanted.data())) << got[0] << ", trainer: " << wanted[0];
  EXPECT_THROW(Sequence{model}, Error);
}

TEST_P(EncoderCheckpoint, AnEncoderDecoderHasTheLogitsOfTheTrainer) {
  const TransformerConfig config = GetParam().config;
  Transformer<float> trained(config, 1);
  randomise(trained);
  const TempDir directory;
  save(trained, directory, {7, 3});
  const std::vector<int32_t> source = tokens_of(kSource, 5, config.vocab_size), tokens = tokens_of(kTokens, 6, config.vocab_size);
  nn::TokenBatch batch;
  batch.batch = 1;
  batch.seq = kTokens;
  batch.tokens = tokens;
  batch.source_seq = kSource;
  batch.source = source;
  const auto vocab = static_cast<size_t>(config.vocab_size);
  std::vector<float> wanted(tokens.size() * vocab);
  ThreadPool pool(2);
  trained.logits(pool, batch, wanted);

  const Model model = Model::load(directory.path());
  EXPECT_EQ(model.info().architecture, "encoder_decoder");
  EXPECT_EQ(model.decoder_start(), 7);
  EXPECT_EQ(model.eos_ids(), std::vector<int32_t>{3});
  Sequence sequence(model, source);
  EXPECT_EQ(sequence.source_size(), kSource);
  std::vector<float> whole(wanted.size());
  Feed feed{&sequence, tokens, Feed::Rows::kAll};
  model.forward({&feed, 1}, {}, whole.data());
  EXPECT_TRUE(same(whole, wanted.data())) << "at once: " << whole[0] << ", trainer: " << wanted[0];

  // Token by token, in a batch with a text about something else; a fork goes on with the same source.
  const std::vector<int32_t> other = tokens_of(11, 9, config.vocab_size);
  Sequence first(model, source), second(model, other);
  std::vector<float> rows(2 * vocab), row(vocab);
  for (size_t t = 0; t < 60; ++t) {
    const std::span<const int32_t> one = std::span(tokens).subspan(t, 1);
    const Feed feeds[] = {{&second, one, Feed::Rows::kLast}, {&first, one, Feed::Rows::kLast}};
    model.forward(feeds, {}, rows.data());
    ASSERT_EQ(std::memcmp(rows.data() + vocab, wanted.data() + t * vocab, vocab * sizeof(float)), 0) << "token " << t;
    EXPECT_NE(std::memcmp(rows.data(), rows.data() + vocab, vocab * sizeof(float)), 0) << "the source has to matter";
  }
  Sequence fork = first.fork();
  feed = {&fork, std::span(tokens).subspan(60, 1), Feed::Rows::kLast};
  model.forward({&feed, 1}, {}, row.data());
  EXPECT_TRUE(same(row, wanted.data() + 60 * vocab));
}

TEST_P(EncoderCheckpoint, TrainingGoesOnFromIt) {
  for (const Architecture architecture : {Architecture::kEncoder, Architecture::kEncoderDecoder}) {
    TransformerConfig config = GetParam().config;
    config.architecture = architecture;
    if (architecture == Architecture::kEncoder) config.num_encoder_layers = 0;
    Transformer<float> trained(config, 1);
    randomise(trained);
    const TempDir directory;
    save(trained, directory);
    const model::TrainableFile file(directory.path());
    Transformer<float> again(file.shape(kTokens), 2);
    file.read(again.parameters(), nullptr);
    ASSERT_EQ(again.parameters().count(), trained.parameters().count());
    EXPECT_EQ(std::memcmp(again.parameters().values().data(), trained.parameters().values().data(), static_cast<size_t>(trained.parameters().count()) * sizeof(float)), 0);
    EXPECT_EQ(again.config().encoder_mask, trained.config().encoder_mask);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, EncoderCheckpoint, testing::ValuesIn(cases()), [](const auto& param) { return param.param.name; });

TEST(EncoderCheckpointRefusal, SaysWhatThisModelIsNot) {
  Transformer<float> trained(plain(), 1);
  const TempDir directory;
  save(trained, directory);
  const Model model = Model::load(directory.path());
  EXPECT_EQ(model.decoder_start(), std::nullopt);
  std::vector<float> out(static_cast<size_t>(model.info().vocab_size));
  const auto code_of = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code();
    }
    return Code::kFailedCheck;
  };
  const std::vector<int32_t> one = {1}, none, outside = {37}, long_one(static_cast<size_t>(kSource + 11), 1);
  EXPECT_EQ(code_of([&] { Sequence sequence(model); }), Code::kInvalidArgument);
  EXPECT_EQ(code_of([&] { model.encode(one, {}, out.data()); }), Code::kUnsupported) << "logits";
  ForwardOptions hidden;
  hidden.output = Output::kHidden;
  for (const auto& wrong : {none, outside, long_one}) EXPECT_EQ(code_of([&] { model.encode(wrong, hidden, out.data()); }), Code::kInvalidArgument);
  StopToken stop;
  stop.request_stop();
  EXPECT_EQ(code_of([&] { Sequence sequence(model, one, &stop); }), Code::kCancelled);
}

}  // namespace
}  // namespace regard::train_test
