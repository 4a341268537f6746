// A GGUF file as a program reads it that does not know the keys of this library.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "format/gguf_writer.h"
#include "format/tensor_source.h"

namespace regard::testing_support {

/// Copies the file `from` to `to` without the keys that begin with "regard.": one that has none fails the test.
inline void copy_without_own_keys(const std::string& from, const std::string& to) {
  const TensorSource source = TensorSource::open(from).value_or_throw();
  GgufMetadata metadata;
  for (const std::string& key : source.metadata()->keys())
    if (!key.starts_with("regard.")) metadata.insert(key, *source.metadata()->find(key));
  EXPECT_LT(metadata.size(), source.metadata()->size());
  std::vector<GgufTensorHead> heads;
  for (const TensorInfo& tensor : source.tensors()) heads.push_back({tensor.name, tensor.type, tensor.shape});
  const auto bytes = [&](size_t i) -> Result<std::vector<uint8_t>> {
    std::vector<uint8_t> all(source.tensors()[i].bytes);
    std::move(source.read(source.tensors()[i], all)).value_or_throw();
    return all;
  };
  std::move(write_gguf(to, metadata, heads, bytes, Overwrite::kRefuse)).value_or_throw();
}

}  // namespace regard::testing_support
