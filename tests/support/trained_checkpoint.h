// A model that a trainer has, saved as the trainer saves it, with numbers in which every mistake shows.
#pragma once

#include <gtest/gtest.h>

#include "base/rng.h"
#include "format/safetensors_writer.h"
#include "nn/training/transformer.h"
#include "support/temp_dir.h"
#include "train/model_config.h"

namespace regard::testing_support {

// Every number of the model random, biases and gains too: one that was left out or came twice shows.
inline void randomise(nn::Transformer<float>& model) {
  nn::ParameterStore<float>& store = model.parameters();
  const auto& parameters = store.parameters();
  for (size_t i = 0; i < parameters.size(); ++i)
    for (int64_t n = 0; n < parameters[i].size; ++n) {
      const auto bits = static_cast<double>(random_bits(3, i, static_cast<uint64_t>(n)) >> 11) * 0x1p-53;
      const double gain = parameters[i].shape.size() == 1 && parameters[i].name.ends_with(".weight") ? 1 : 0;
      store.value(static_cast<int>(i))[n] = static_cast<float>(gain + 0.9 * (bits - 0.5));
    }
}

inline void save(nn::Transformer<float>& model, const TempDir& directory, const train_loop::SpecialIds& special = {}) {
  std::vector<SafetensorsEntry> entries;
  for (size_t i = 0; i < model.parameters().parameters().size(); ++i) {
    const nn::Parameter& p = model.parameters().parameters()[i];
    const std::span<const float> values(model.parameters().value(static_cast<int>(i)), static_cast<size_t>(p.size));
    entries.push_back({p.name, DType::kF32, p.shape, std::as_bytes(values)});
  }
  ASSERT_TRUE(write_safetensors(directory.path("model.safetensors"), entries));
  directory.write("config.json", train_loop::model_config_json(model.config(), special));
}

}  // namespace regard::testing_support
