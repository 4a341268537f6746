// A tiny random GPT-2 whose tokens are characters, as a checkpoint directory that is loaded like any other.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "format/safetensors_writer.h"
#include "regard/model.h"
#include "regard/tokenizer_training.h"
#include "support/temp_dir.h"

namespace regard::test {

class TinyPoet {
 public:
  static constexpr int64_t kHidden = 24, kHeads = 3, kLayers = 2, kContext = 128;

  /// The usual vocabulary: a line end, some Latin letters, the marks, and 24 Han characters.
  explicit TinyPoet(std::string_view characters =
                        "\nabc\uFF0C\u3002\u6625\u590F\u79CB\u51AC\u6708\u5C71\u6C34\u82B1\u98CE\u4E91\u96E8\u96EA\u5929\u5730\u4EBA\u5FC3"
                        "\u6765\u53BB\u4E0D\u65E0\u957F\u9AD8\u660E\u9752") {
    const std::vector<std::string> texts = {std::string(characters)};
    const TrainedTokenizer tokenizer = train_tokenizer(texts, {});
    directory_.write("tokenizer.json", tokenizer.json);
    const int64_t vocab = tokenizer.tokenizer.vocab_size();
    directory_.write("config.json", fmt::format(R"({{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new", "n_embd": {},
      "n_head": {}, "n_layer": {}, "n_positions": {}, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": true, "vocab_size": {}}})",
                                                kHidden, kHeads, kLayers, kContext, vocab));
    // Large enough that attention is far from even and the logits of different places differ.
    add("wte.weight", {vocab, kHidden}, 1.0f);
    add("wpe.weight", {kContext, kHidden}, 0.5f);
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const auto part = [&](std::string_view name, std::vector<int64_t> shape, float scale, float offset = 0) {
        add(fmt::format("h.{}.{}", layer, name), std::move(shape), scale, offset);
      };
      part("ln_1.weight", {kHidden}, 0.2f, 1), part("ln_1.bias", {kHidden}, 0.1f);
      part("attn.c_attn.weight", {kHidden, 3 * kHidden}, 0.5f), part("attn.c_attn.bias", {3 * kHidden}, 0.1f);
      part("attn.c_proj.weight", {kHidden, kHidden}, 0.3f), part("attn.c_proj.bias", {kHidden}, 0.1f);
      part("ln_2.weight", {kHidden}, 0.2f, 1), part("ln_2.bias", {kHidden}, 0.1f);
      part("mlp.c_fc.weight", {kHidden, 4 * kHidden}, 0.3f), part("mlp.c_fc.bias", {4 * kHidden}, 0.1f);
      part("mlp.c_proj.weight", {4 * kHidden, kHidden}, 0.2f), part("mlp.c_proj.bias", {kHidden}, 0.1f);
    }
    add("ln_f.weight", {kHidden}, 0.1f, 0.6f), add("ln_f.bias", {kHidden}, 0.1f);
    std::vector<SafetensorsEntry> entries;
    for (const Tensor& tensor : tensors_)
      entries.push_back({"transformer." + tensor.name, DType::kF32, tensor.shape, std::as_bytes(std::span(tensor.values))});
    EXPECT_TRUE(write_safetensors(directory_.path("model.safetensors"), entries));
    model_ = std::make_unique<Model>(Model::load(directory_.path()));
  }

  const Model& model() const { return *model_; }
  std::string path() const { return directory_.path(); }

 private:
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> values;
  };

  // Uniform in offset +- scale.
  void add(std::string name, std::vector<int64_t> shape, float scale, float offset = 0) {
    int64_t size = 1;
    for (const int64_t extent : shape) size *= extent;
    Tensor tensor{std::move(name), std::move(shape), {}};
    for (int64_t i = 0; i < size; ++i)
      tensor.values.push_back(offset + scale * static_cast<float>(2 * random_uniform(17, tensors_.size(), static_cast<uint64_t>(i)) - 1));
    tensors_.push_back(std::move(tensor));
  }

  testing_support::TempDir directory_;
  std::vector<Tensor> tensors_;
  std::unique_ptr<Model> model_;
};

}  // namespace regard::test
