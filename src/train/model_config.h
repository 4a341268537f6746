// From the model section of a configuration to a Transformer, and to the config.json that its checkpoints carry.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/training/transformer_config.h"
#include "regard/train.h"

namespace regard::train_loop {

/// The Transformer that `config` asks for, complete. Errors: kInvalidArgument with the field, also when a field does not go with
/// model.type. `num_classes`: 0, or how many the data have.
nn::TransformerConfig transformer_config(const TrainConfig& config, int64_t vocab_size, int64_t num_classes = 0);

/// Choices of a configuration in the words of nn.
nn::Recompute recompute_of(TrainConfig::Model::Recompute recompute);
nn::training::GemmPrecision precision_of(TrainConfig::Run::Precision precision);

/// Ids that programs which generate want to know.
struct SpecialIds {
  std::optional<int32_t> begin{}, end{};
  std::optional<int32_t> padding{};
};

/// The config.json of Hugging Face's gpt2, llama or t5 where the parameters are named that way (nn::parameter_naming), else one of
/// model_type "regard" with the fields of nn::TransformerConfig, and the names of classes as Hugging Face has them (id2label, label2id).
std::string model_config_json(const nn::TransformerConfig& config, const SpecialIds& special,
                              TrainConfig::Run::SaveAs weights = TrainConfig::Run::SaveAs::kF32, const std::vector<std::string>& class_names = {});

}  // namespace regard::train_loop
