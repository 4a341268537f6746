// Published models from their own files: load one, feed it tokens, read logits. Start at Model::load.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "regard/dtype.h"
#include "regard/export.h"
#include "regard/stop_token.h"

namespace regard {

class Tokenizer;

/// How the bytes of a model file reach memory.
enum class FileAccess {
  kRead,  ///< read tensor by tensor; nobody can change the file under us (the default)
  kMap,   ///< map it; faster to open, but a file that shrinks meanwhile ends the process with SIGBUS
};

struct ModelOptions {
  /// Tokens per sequence that caches and position tables are made for. 0: the length the model was trained for.
  /// Scalings that depend on the length (dynamic, long-rope) take it as the declared length.
  int64_t context = 0;
  FileAccess access = FileAccess::kRead;
  /// What cached keys and values are stored in: f32, f16, bf16, or i8 with a scale for each token and head. Prompts and
  /// decoded tokens read them through this type alike; arithmetic is in f32.
  DType cache_type = DType::kF32;
  /// Called while tensors are read, with bytes done and bytes in all. May be empty.
  std::function<void(uint64_t done, uint64_t total)> progress;
  const StopToken* stop = nullptr;
};

/// What is inside a model file. All of it is read from the file; nothing is run.
struct ModelInfo {
  std::string family;        ///< "llama", "qwen2", "qwen3", "gemma3", ...
  std::string name;          ///< the file's own name for itself, else that of the directory; empty for a GGUF file without one
  std::string format;        ///< "gguf" or "safetensors"
  std::string architecture = "decoder";  ///< or "encoder", "encoder_decoder"
  int64_t num_layers = 0;          ///< of the decoder, or of an encoder alone
  int64_t num_encoder_layers = 0;  ///< of an encoder-decoder
  int64_t hidden_size = 0;
  int64_t num_q_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn_size = 0;
  int64_t vocab_size = 0;
  int64_t num_classes = 0;   ///< not 0: the model tells classes apart and predicts no tokens, see Model::classify()
  std::vector<std::string> class_names;  ///< of the classes in their order; empty: the file names none
  int64_t context = 0;       ///< tokens that the model was trained for
  int64_t max_context = 0;   ///< tokens that its learned positions are for, which no context can pass; 0: positions are no table
  int64_t window = 0;        ///< keys that a windowed layer's query sees, itself included; 0: no window
  int64_t num_parameters = 0;
  uint64_t file_bytes = 0;
  uint64_t weight_bytes = 0;           ///< memory that the packed weights take
  uint64_t cache_bytes_per_token = 0;  ///< memory that one more token of one sequence takes; so does one of its source
  uint64_t workspace_bytes = 0;        ///< upper bound of scratch memory for a prefill chunk of 512 tokens
  std::vector<std::pair<std::string, int64_t>> tensor_types;  ///< type name and number of tensors
  bool has_tokenizer = false;
  bool has_chat_template = false;
};

class Sequence;

/// Some tokens for one sequence, and what to hand back of them.
struct Feed {
  Sequence* sequence = nullptr;
  std::span<const int32_t> tokens;
  enum class Rows { kNone, kLast, kAll } rows = Rows::kLast;
};

/// What one row of the output of Model::forward holds.
enum class Output {
  kLogits,  ///< vocab_size raw logits
  kHidden,  ///< hidden_size values: the last hidden state after the final norm
};

/// What a class is told of.
enum class ClassesOf {
  kText,    ///< the whole text: what the first token of an encoder says, and the last one of a decoder, which alone has seen all
  kTokens,  ///< each token
};

struct ForwardOptions {
  Output output = Output::kLogits;
  /// Tokens computed together; bounds the workspace and the time to a cancellation. Changes no bit of the result.
  int64_t chunk = 512;
  const StopToken* stop = nullptr;
};

/// A Transformer with its weights: a decoder, an encoder, or both. Immutable after loading, cheap to copy, safe to share between threads;
/// calls of forward() from several threads take turns on the thread pool.
class REGARD_API Model {
 public:
  /// Loads a GGUF file (for a split one, its first part) or a Hugging Face directory (config.json and safetensors).
  /// Errors: kNotFound, kCorruptData, kUnsupported (a family, tensor type or option that is not implemented; the message
  /// names it), kResourceExhausted, kIo, kCancelled.
  static Model load(const std::string& path, const ModelOptions& options = {});

  /// Reads the description only: no tensor data, no weights in memory.
  static ModelInfo describe(const std::string& path);

  const ModelInfo& info() const;
  /// Tokens per sequence that this model was loaded for.
  int64_t context() const;
  /// Errors: kNotFound when the file brought none.
  const Tokenizer& tokenizer() const;
  /// The chat template of the file, if it has one.
  const std::optional<std::string>& chat_template() const;
  /// Ids that end a text.
  const std::vector<int32_t>& eos_ids() const;

  /// Feeds tokens to sequences, appending to their caches, and writes the asked rows, feed by feed, to `out`
  /// (rows x vocab_size or hidden_size, dense).
  ///
  /// Bits: a row does not depend on the other feeds, on `chunk`, on how its sequence was cut into calls, or on the number
  /// of threads. Errors: kInvalidArgument for ids outside the vocabulary, one sequence fed twice, more tokens than the
  /// context has room for (the message has both numbers); kUnsupported for logits of a model that tells classes apart; kCancelled. After an error every sequence is as it was before.
  void forward(std::span<const Feed> feeds, const ForwardOptions& options, float* out) const;

  /// Reads a whole text with the encoder and writes a row per token to `out` (tokens x vocab_size or hidden_size, dense): of an encoder alone,
  /// what its head says of each token (masked ones, say) or the last hidden states; of an encoder-decoder the hidden states, which
  /// have no logits. ForwardOptions::chunk means nothing here, since every token sees every other one.
  /// Errors: kUnsupported for a decoder, and for logits of an encoder-decoder or of a model that tells classes apart; kInvalidArgument for no tokens, ids outside the vocabulary, and
  /// more tokens than the context has room for; kCancelled.
  void encode(std::span<const int32_t> tokens, const ForwardOptions& options, float* out) const;

  /// Reads a whole text with a model that tells classes apart and writes raw logits of the classes to `out`: one row of num_classes, or a row
  /// per token, dense. Bits: those that the model's training evaluates; the number of threads changes none.
  /// Errors: kUnsupported for a model that predicts tokens; otherwise as encode().
  void classify(std::span<const int32_t> tokens, ClassesOf what, float* out, const StopToken* stop = nullptr) const;

  /// The id that the texts of an encoder-decoder begin with, if its file says.
  std::optional<int32_t> decoder_start() const;

  /// Rows that forward() writes for these feeds.
  static int64_t num_rows(std::span<const Feed> feeds);

  struct Impl;
  explicit Model(std::shared_ptr<const Impl> impl);
  const std::shared_ptr<const Impl>& shared_impl() const { return impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

/// The keys and values that a model remembers of one text. Not thread-safe.
class REGARD_API Sequence {
 public:
  /// An empty sequence; memory is taken as tokens come. Errors: kUnsupported for an encoder, which writes nothing;
  /// kInvalidArgument for an encoder-decoder, which needs a source.
  explicit Sequence(const Model& model);
  /// Of an encoder-decoder: an empty sequence about `source`. The encoder runs here, once; its keys and values are shared by all
  /// forks. Errors: kUnsupported for other models; otherwise as Model::encode().
  Sequence(const Model& model, std::span<const int32_t> source, const StopToken* stop = nullptr);
  ~Sequence();
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;

  /// Tokens remembered so far.
  int64_t size() const;
  const std::vector<int32_t>& tokens() const;
  /// Tokens of the source; 0 but for an encoder-decoder.
  int64_t source_size() const;
  /// Forgets all but the first n tokens.
  void truncate(int64_t n);
  /// An independent copy.
  Sequence fork() const;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  explicit Sequence(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace regard
