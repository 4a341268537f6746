// What was trained opens as a model: the config.json and the tensors of a checkpoint, loaded, give the logits that the trainer
// has with teacher forcing, bit for bit, whether the tokens come at once or one by one; for every shape of decoder.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "regard/error.h"
#include "regard/model.h"
#include "runtime/thread_pool.h"
#include "support/trained_checkpoint.h"

namespace regard::train_test {
namespace {

using nn::Transformer;
using nn::TransformerConfig;
using testing_support::randomise;
using testing_support::save;
using testing_support::TempDir;

// Longer than a tile of keys.
constexpr int64_t kTokens = 270;

TransformerConfig gpt2_shape() {
  TransformerConfig c;
  c.vocab_size = 37;
  c.hidden_size = 24;
  c.num_layers = 2;
  c.num_q_heads = 3;
  c.intermediate_size = 40;
  c.max_positions = kTokens + 30;
  return c;
}

TransformerConfig llama_shape() {
  TransformerConfig c = gpt2_shape();
  c.hidden_size = 32;
  c.num_q_heads = 4;
  c.num_kv_heads = 2;
  c.position = nn::PositionKind::kRope;
  c.norm = nn::NormKind::kRms;
  c.activation = nn::Activation::kSilu;
  c.feed_forward = nn::FeedForwardKind::kGated;
  c.biases = nn::Biases::kNone;
  c.head = nn::Head::kUntied;
  return c;
}

struct Case {
  std::string name;
  std::string family;
  TransformerConfig config;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](std::string name, std::string family, TransformerConfig base, const std::function<void(TransformerConfig&)>& change) {
    change(base);
    all.push_back({std::move(name), std::move(family), std::move(base)});
  };
  add("gpt2", "gpt2", gpt2_shape(), [](auto&) {});
  add("llama", "llama", llama_shape(), [](auto&) {});
  add("llama_tied", "llama", llama_shape(), [](auto& c) { c.head = nn::Head::kTied; });
  for (const auto& [name, position] : {std::pair{"none", nn::PositionKind::kNone}, std::pair{"sinusoidal", nn::PositionKind::kSinusoidal},
                                       std::pair{"alibi", nn::PositionKind::kAlibi}, std::pair{"t5", nn::PositionKind::kT5},
                                       std::pair{"xl", nn::PositionKind::kXl}})
    add(std::string("position_") + name, "regard", gpt2_shape(), [position](auto& c) { c.position = position; });
  add("t5_far", "regard", llama_shape(), [](auto& c) {
    c.position = nn::PositionKind::kT5;
    c.t5_buckets = 6;
    c.t5_max_distance = 200;
  });
  add("xl_grouped_post", "regard", llama_shape(), [](auto& c) {
    c.position = nn::PositionKind::kXl;
    c.placement = nn::NormPlacement::kPost;
  });
  add("attention_only", "regard", gpt2_shape(), [](auto& c) { c.intermediate_size = 0; });
  add("attention_only_post", "regard", gpt2_shape(), [](auto& c) {
    c.intermediate_size = 0;
    c.placement = nn::NormPlacement::kPost;
  });
  add("post_norm", "regard", gpt2_shape(), [](auto& c) {
    c.placement = nn::NormPlacement::kPost;
    c.position = nn::PositionKind::kSinusoidal;
    c.embedding_scale = 4.9;
    c.activation = nn::Activation::kRelu;
  });
  add("no_biases", "regard", gpt2_shape(), [](auto& c) { c.biases = nn::Biases::kNone; });
  add("untied", "regard", gpt2_shape(), [](auto& c) { c.head = nn::Head::kUntied; });
  add("gated_with_biases", "regard", llama_shape(), [](auto& c) { c.biases = nn::Biases::kAll; });
  add("plain_rms", "regard", llama_shape(), [](auto& c) {
    c.feed_forward = nn::FeedForwardKind::kPlain;
    c.activation = nn::Activation::kGeluErf;
  });
  add("query_key_norm", "regard", llama_shape(), [](auto& c) { c.query_key_norm = true; });
  add("query_key_layer_norm", "regard", gpt2_shape(), [](auto& c) { c.query_key_norm = true; });
  add("sandwich", "regard", llama_shape(), [](auto& c) {
    c.placement = nn::NormPlacement::kSandwich;
    c.query_key_norm = true;
  });
  add("sandwich_attention_only", "regard", gpt2_shape(), [](auto& c) {
    c.placement = nn::NormPlacement::kSandwich;
    c.intermediate_size = 0;
  });
  add("soft_caps", "regard", llama_shape(), [](auto& c) {
    c.attention_softcap = 1.7;
    c.final_softcap = 2.3;
  });
  add("wide_heads", "regard", gpt2_shape(), [](auto& c) { c.head_dim = 10; });
  add("scale", "regard", gpt2_shape(), [](auto& c) { c.attention_scale = 0.7; });
  add("window", "regard", llama_shape(), [](auto& c) { c.mask = Mask::causal() & Mask::window(17, 0); });
  add("sinks", "regard", llama_shape(), [](auto& c) { c.mask = Mask::parse("causal & (window(17, 0) | sinks(2))"); });
  add("per_head", "regard", llama_shape(), [](auto& c) {
    c.mask = Mask::parse("per_head(causal, causal & window(3, 0), causal & dilated(2), causal & chunk(16))");
  });
  return all;
}

std::vector<int32_t> tokens_of(const TransformerConfig& config) {
  std::vector<int32_t> tokens;
  for (uint64_t i = 0; i < kTokens; ++i) tokens.push_back(static_cast<int32_t>(random_bits(5, 0, i) % static_cast<uint64_t>(config.vocab_size)));
  return tokens;
}

class Checkpoint : public testing::TestWithParam<Case> {};

TEST_P(Checkpoint, HasTheLogitsOfTheTrainer) {
  const Case& c = GetParam();
  Transformer<float> trained(c.config, 1);
  randomise(trained);
  const TempDir directory;
  save(trained, directory);

  const std::vector<int32_t> tokens = tokens_of(c.config);
  const auto vocab = static_cast<size_t>(c.config.vocab_size);
  nn::TokenBatch batch;
  batch.batch = 1;
  batch.seq = kTokens;
  batch.tokens = tokens;
  std::vector<float> forced(tokens.size() * vocab);
  ThreadPool pool(2);
  trained.logits(pool, batch, forced);
  ASSERT_NE(std::memcmp(forced.data(), forced.data() + vocab, vocab * sizeof(float)), 0);

  const Model model = Model::load(directory.path());
  EXPECT_EQ(model.info().family, c.family);
  std::vector<float> whole(forced.size());
  Sequence sequence(model);
  Feed feed{&sequence, tokens, Feed::Rows::kAll};
  model.forward({&feed, 1}, {}, whole.data());
  EXPECT_EQ(std::memcmp(whole.data(), forced.data(), forced.size() * sizeof(float)), 0) << "at once: " << whole[0] << ", trainer: " << forced[0];
  Sequence step_by_step(model);
  std::vector<float> row(vocab);
  for (size_t t = 0; t < tokens.size(); ++t) {
    feed = {&step_by_step, std::span(tokens).subspan(t, 1), Feed::Rows::kAll};
    model.forward({&feed, 1}, {}, row.data());
    ASSERT_EQ(std::memcmp(row.data(), forced.data() + t * vocab, vocab * sizeof(float)), 0) << "token " << t;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Checkpoint, testing::ValuesIn(cases()), [](const auto& param) { return param.param.name; });

// Saves a model of this shape and gives the message with which loading it is refused.
std::string refusal(const TransformerConfig& config, Code code) {
  Transformer<float> trained(config, 1);
  const TempDir directory;
  save(trained, directory);
  try {
    (void)Model::load(directory.path());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "nothing was refused";
}

TEST(CheckpointRefusal, NamesWhatAModelCannotBe) {
  const auto expect_names = [](const TransformerConfig& config, std::string_view what) {
    const std::string message = refusal(config, Code::kUnsupported);
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  TransformerConfig c = gpt2_shape();
  c.mask = Mask::parse("causal | prefix(4)");
  expect_names(c, "query 0 sees key 1");
}

}  // namespace
}  // namespace regard::train_test
