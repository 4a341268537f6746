// Teacher forcing and decoding are the same arithmetic: the logits of a training step have the bits that the model, written to
// a file and loaded, gives token by token.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "regard/model.h"
#include "support/safetensors_builder.h"
#include "support/temp_dir.h"
#include "support/training_cases.h"

namespace regard::test {
namespace {

using nn::Transformer;
using nn::TransformerConfig;

void write(const std::string& path, const void* bytes, size_t size) {
  std::ofstream(path, std::ios::binary).write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
}

// A checkpoint as Hugging Face has it, of a LLaMA shape.
void save(Transformer<float>& model, const std::string& folder) {
  const TransformerConfig& c = model.config();
  testing_support::SafetensorsBuilder file;
  for (size_t i = 0; i < model.parameters().parameters().size(); ++i) {
    const nn::Parameter& p = model.parameters().parameters()[i];
    std::vector<uint8_t> bytes(static_cast<size_t>(p.size) * sizeof(float));
    std::memcpy(bytes.data(), model.parameters().value(static_cast<int>(i)), bytes.size());
    std::string shape = "[";
    for (size_t a = 0; a < p.shape.size(); ++a) shape += (a > 0 ? "," : "") + std::to_string(p.shape[a]);
    file.tensor(p.name, "F32", shape + "]", bytes);
  }
  const std::vector<uint8_t> bytes = file.build();
  write(folder + "/model.safetensors", bytes.data(), bytes.size());
  const nlohmann::json config = {{"model_type", "llama"},
                                 {"vocab_size", c.vocab_size},
                                 {"hidden_size", c.hidden_size},
                                 {"num_hidden_layers", c.num_layers},
                                 {"num_attention_heads", c.num_q_heads},
                                 {"num_key_value_heads", c.num_kv_heads},
                                 {"head_dim", c.head_dim},
                                 {"intermediate_size", c.intermediate_size},
                                 {"max_position_embeddings", c.max_positions},
                                 {"rms_norm_eps", c.norm_eps},
                                 {"rope_theta", c.rope.theta},
                                 {"hidden_act", "silu"},
                                 {"tie_word_embeddings", c.head == nn::Head::kTied}};
  const std::string text = config.dump();
  write(folder + "/config.json", text.data(), text.size());
}

TEST(TrainingLogits, HaveTheBitsOfDecoding) {
  for (const nn::Head head : {nn::Head::kUntied, nn::Head::kTied}) {
    TransformerConfig config = llama_config();
    config.vocab_size = 61;
    config.hidden_size = 72;
    config.num_q_heads = 6;
    config.num_kv_heads = 3;
    config.intermediate_size = 100;
    config.max_positions = 300;
    config.init_std = 0.15;
    config.head = head;
    Transformer<float> trained(config, 4);
    const testing_support::TempDir folder;
    save(trained, folder.path());
    const Model loaded = Model::load(folder.path());

    const int64_t seq = 270;  // beyond one tile of keys
    BatchData data = random_batch(config, 2, seq);
    data.lengths = {seq, 33};
    std::vector<float> forced(static_cast<size_t>(2 * seq * config.vocab_size));
    ThreadPool pool(2);
    trained.logits(pool, data.view(), forced);
    for (int64_t b = 0; b < 2; ++b) {
      Sequence sequence(loaded);
      std::vector<float> row(static_cast<size_t>(config.vocab_size));
      for (int64_t t = 0; t < data.lengths[static_cast<size_t>(b)]; ++t) {
        const auto at = static_cast<size_t>(b * seq + t);
        const Feed feed{&sequence, {&data.tokens[at], 1}, Feed::Rows::kAll};
        loaded.forward({&feed, 1}, {}, row.data());
        ASSERT_EQ(std::memcmp(row.data(), forced.data() + at * row.size(), row.size() * sizeof(float)), 0)
            << "sequence " << b << ", token " << t << ": " << row[0] << " decoded, " << forced[at * row.size()] << " with teacher forcing";
      }
    }
  }
}

}  // namespace
}  // namespace regard::test
