// The public face of this room: loading, describing, and sequences around a Decoder.
#include <filesystem>
#include <map>
#include <set>

#include "base/check.h"
#include "model/model_impl.h"
#include "model/weights.h"
#include "regard/model_attention.h"
#include "regard/tokenizer.h"
#include "runtime/thread_pool.h"

namespace regard {
namespace {

using model::OpenedModel;

constexpr int64_t kUsualChunk = 512;

ModelInfo describe_opened(const OpenedModel& opened, const model::Family& family, const model::DecoderConfig& config) {
  ModelInfo info;
  info.family = family.name;
  info.name = opened.facts.name.empty() && opened.facts.kind == model::FileKind::kHuggingFace ? model::directory_name(opened.path) : opened.facts.name;
  info.format = opened.source.format() == WeightFormat::kGguf ? "gguf" : "safetensors";
  if (opened.facts.shape) {
    constexpr std::string_view kNames[] = {"decoder", "encoder", "encoder_decoder"};
    info.architecture = kNames[static_cast<size_t>(opened.facts.shape->architecture)];
    info.num_encoder_layers = opened.facts.shape->num_encoder_layers;
  }
  info.num_layers = config.num_layers;
  info.hidden_size = config.hidden_size;
  info.num_q_heads = config.num_q_heads;
  info.num_kv_heads = config.num_kv_heads;
  info.head_dim = config.head_dim;
  info.ffn_size = config.ffn_size;
  info.vocab_size = config.vocab_size;
  info.num_classes = config.num_classes;
  info.class_names = opened.facts.class_names;
  info.context = config.context;
  if (config.position == nn::PositionKind::kLearned) info.max_context = config.max_positions;
  for (bool windowed : config.windowed)
    if (windowed) info.window = config.window;
  info.file_bytes = opened.source.file_bytes();
  std::map<std::string, int64_t> types;
  for (const TensorInfo& tensor : opened.source.tensors()) {
    info.num_parameters += tensor.values();
    ++types[std::string(regard::info(tensor.type).name)];
  }
  info.tensor_types.assign(types.begin(), types.end());
  info.has_tokenizer = opened.has_tokenizer;
  info.has_chat_template = opened.chat_template.has_value();
  info.cache_bytes_per_token = model::cache_bytes_per_token(config);
  info.workspace_bytes = model::workspace_bytes(config, kUsualChunk, default_pool().size());
  return info;
}

}  // namespace

Model Model::load(const std::string& path, const ModelOptions& options) {
  OpenedModel opened = model::open_model(path, options.access, model::WithTokenizer::kYes);
  return model::load_opened(std::move(opened), nullptr, options);
}

Model model::load_opened(OpenedModel opened, const Family* family, const ModelOptions& options) {
  require(options.context >= 0, "[Model::load] context is {}; expected 0 (the model's own) or more", options.context);
  const Family& used = family != nullptr ? *family : find_family(opened.facts);
  LoadedModel loaded = read_weights(opened, used, options);
  DecoderConfig& config = loaded.main.config;
  ModelInfo info = describe_opened(opened, used, config);
  info.vocab_size = config.vocab_size;
  info.weight_bytes = loaded.weight_bytes;
  const int64_t context = options.context == 0 ? config.context : options.context;

  std::optional<Tokenizer> tokenizer;
  if (opened.tokenizer) {
    drop_special_behind(*opened.tokenizer, config.vocab_size);
    tokenizer = build_tokenizer(std::move(*opened.tokenizer)).value_or_throw();
    if (tokenizer->vocab_size() > config.vocab_size)
      fail(Code::kCorruptData, "[Model::load] the tokenizer has {} ids, the embedding {} rows", tokenizer->vocab_size(), config.vocab_size);
  }
  std::set<int32_t> eos(config.eos_ids.begin(), config.eos_ids.end());
  if (tokenizer)
    for (const auto& id : {tokenizer->eos(), tokenizer->eot()})
      if (id) eos.insert(*id);
  for (int32_t id : eos)
    if (id < 0 || id >= config.vocab_size)
      fail(Code::kCorruptData, "[Model::load] end-of-text id {} is outside the vocabulary of {}", id, config.vocab_size);
  if (const auto id = opened.facts.decoder_start; id && (*id < 0 || *id >= config.vocab_size))
    fail(Code::kCorruptData, "[Model::load] the id that texts begin with is {}, outside the vocabulary of {}", *id, config.vocab_size);
  auto impl = std::make_shared<Model::Impl>(std::move(info), model::Decoder(std::move(config), std::move(loaded.main.weights), context));
  if (opened.facts.shape) impl->architecture = opened.facts.shape->architecture;
  if (loaded.encoder) impl->encoder.emplace(std::move(loaded.encoder->config), std::move(loaded.encoder->weights), context);
  impl->decoder_start = opened.facts.decoder_start;
  impl->tokenizer = std::move(tokenizer);
  impl->chat_template = std::move(opened.chat_template);
  impl->eos_ids.assign(eos.begin(), eos.end());
  return Model(std::move(impl));
}

ModelInfo Model::describe(const std::string& path) {
  const OpenedModel opened = model::open_model(path, FileAccess::kRead, model::WithTokenizer::kNo);
  const model::Family& family = model::find_family(opened.facts);
  model::DecoderConfig config = model::configure(family, opened.facts);
  const bool gguf = opened.facts.kind == model::FileKind::kGguf;
  const model::PartNames* part = family.find(model::Part::kEmbedding);
  if (const TensorInfo* tensor = opened.source.find(model::tensor_name(gguf ? part->gguf : part->hugging_face, 0, ".weight"));
      tensor != nullptr && config.vocab_size == 0 && tensor->shape.size() == 2)
    config.vocab_size = tensor->shape[0];
  ModelInfo info = describe_opened(opened, family, config);
  for (const TensorInfo& tensor : opened.source.tensors()) info.weight_bytes += tensor.bytes;
  return info;
}

Model::Model(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
const ModelInfo& Model::info() const { return impl_->info; }
int64_t Model::context() const { return impl_->decoder.context(); }
const std::optional<std::string>& Model::chat_template() const { return impl_->chat_template; }
const std::vector<int32_t>& Model::eos_ids() const { return impl_->eos_ids; }
const Tokenizer& Model::tokenizer() const {
  if (!impl_->tokenizer) fail(Code::kNotFound, "[Model::tokenizer] the model file brought no tokenizer; work with token ids");
  return *impl_->tokenizer;
}

std::optional<int32_t> Model::decoder_start() const { return impl_->decoder_start; }

namespace {

void refuse_classes(const Model& model, Output output, std::string_view function) {
  if (output == Output::kLogits && model.info().num_classes > 0)
    fail(Code::kUnsupported, "[Model::{}] this model tells {} classes apart and predicts no tokens; read texts with classify()", function, model.info().num_classes);
}

// All rows of a text that is read at once.
void read_whole(const Model& model, const model::Decoder& stack, std::span<const int32_t> tokens, const ForwardOptions& options, std::string_view function, float* out) {
  const auto n = static_cast<int64_t>(tokens.size());
  require(n >= 1 && n <= model.context(), "[Model::{}] a text of {} tokens; expected 1 to {}, the context", function, n, model.context());
  for (int32_t id : tokens)
    require(id >= 0 && id < model.info().vocab_size, "[Model::{}] token id {} is outside the vocabulary of {}", function, id, model.info().vocab_size);
  model::Caches caches = stack.make_caches();
  const model::DecoderFeed feed{&caches, tokens, Feed::Rows::kAll};
  ForwardOptions whole = options;
  whole.chunk = n;
  const Model::Impl& impl = *model.shared_impl();
  const std::lock_guard lock(impl.turn);
  stack.forward(default_pool(), impl.scratch, {&feed, 1}, whole, nullptr, out);
}

}  // namespace

void Model::encode(std::span<const int32_t> tokens, const ForwardOptions& options, float* out) const {
  if (impl_->architecture == nn::Architecture::kDecoder)
    fail(Code::kUnsupported, "[Model::encode] this model is a decoder, in which a token sees no later one; feed it with forward()");
  if (impl_->encoder && options.output == Output::kLogits)
    fail(Code::kUnsupported, "[Model::encode] the encoder of an encoder-decoder has no logits; ask for hidden states");
  refuse_classes(*this, options.output, "encode");
  read_whole(*this, impl_->encoder ? *impl_->encoder : impl_->decoder, tokens, options, "encode", out);
}

void Model::classify(std::span<const int32_t> tokens, ClassesOf what, float* out, const StopToken* stop) const {
  const int64_t classes = info().num_classes;
  if (classes == 0) fail(Code::kUnsupported, "[Model::classify] this model predicts tokens and tells no classes apart; feed it with forward() or encode()");
  ForwardOptions options;
  options.stop = stop;
  if (what == ClassesOf::kTokens) return read_whole(*this, impl_->decoder, tokens, options, "classify", out);
  AlignedBuffer<float> rows(tokens.size() * static_cast<size_t>(classes));
  read_whole(*this, impl_->decoder, tokens, options, "classify", rows.data());
  const bool first = impl_->architecture == nn::Architecture::kEncoder;
  std::copy_n(first ? rows.data() : rows.data() + rows.size() - static_cast<size_t>(classes), classes, out);
}

int64_t Model::num_rows(std::span<const Feed> feeds) {
  int64_t rows = 0;
  for (const Feed& feed : feeds) {
    const auto tokens = static_cast<int64_t>(feed.tokens.size());
    rows += feed.rows == Feed::Rows::kAll ? tokens : feed.rows == Feed::Rows::kLast && tokens > 0 ? 1 : 0;
  }
  return rows;
}

namespace {

void run_forward(const Model& model, std::span<const Feed> feeds, const ForwardOptions& options, const model::LayerObserver* observer, float* out) {
  require(options.chunk >= 1, "[Model::forward] chunk is {}; expected 1 or more", options.chunk);
  refuse_classes(model, options.output, "forward");
  const Model::Impl& impl = *model.shared_impl();
  std::vector<model::DecoderFeed> checked;
  std::set<const Sequence*> seen;
  for (const Feed& feed : feeds) {
    require(feed.sequence != nullptr, "[Model::forward] a feed has no sequence");
    require(seen.insert(feed.sequence).second, "[Model::forward] one sequence is fed twice; join its tokens into one feed");
    Sequence::Impl& sequence = feed.sequence->impl();
    require(sequence.model == model.shared_impl(), "[Model::forward] a sequence belongs to another model");
    const auto known = static_cast<int64_t>(sequence.tokens.size()), more = static_cast<int64_t>(feed.tokens.size());
    require(known + more <= model.context(), "[Model::forward] a sequence of {} tokens is fed {} more; the context has room for {}", known, more, model.context());
    for (int32_t id : feed.tokens)
      require(id >= 0 && id < model.info().vocab_size, "[Model::forward] token id {} is outside the vocabulary of {}", id, model.info().vocab_size);
    if (more > 0) checked.push_back({&sequence.caches, feed.tokens, feed.rows, sequence.source.get()});
  }
  const std::lock_guard lock(impl.turn);
  try {
    impl.decoder.forward(default_pool(), impl.scratch, checked, options, observer, out);
  } catch (...) {
    for (const Feed& feed : feeds) {
      Sequence::Impl& sequence = feed.sequence->impl();
      for (KvCache& cache : sequence.caches) cache.truncate(std::min(cache.size(), static_cast<int64_t>(sequence.tokens.size())));
    }
    throw;
  }
  for (const Feed& feed : feeds) {
    auto& tokens = feed.sequence->impl().tokens;
    tokens.insert(tokens.end(), feed.tokens.begin(), feed.tokens.end());
  }
}

}  // namespace

void Model::forward(std::span<const Feed> feeds, const ForwardOptions& options, float* out) const { run_forward(*this, feeds, options, nullptr, out); }

void watch_forward(const Model& model, const Feed& feed, const ForwardOptions& options, const OnLayerAttention& on_layer, float* out) {
  const model::LayerObserver observer = [&](int64_t layer, const nn::ObservedAttention& seen) {
    on_layer({layer, seen.q, seen.k, seen.lse, seen.mask, seen.options});
  };
  run_forward(model, {&feed, 1}, options, &observer, out);
}

Sequence::Sequence(const Model& model) : impl_(std::make_unique<Impl>()) {
  impl_->model = model.shared_impl();
  if (impl_->model->architecture == nn::Architecture::kEncoder)
    fail(Code::kUnsupported, "[Sequence] this model is an encoder, which writes no text; read one with Model::encode()");
  require(!impl_->model->encoder, "[Sequence] this model is an encoder-decoder, which writes about a source; give one");
  impl_->caches = impl_->model->decoder.make_caches();
}
Sequence::Sequence(const Model& model, std::span<const int32_t> source, const StopToken* stop) : impl_(std::make_unique<Impl>()) {
  impl_->model = model.shared_impl();
  const Model::Impl& loaded = *impl_->model;
  if (!loaded.encoder) fail(Code::kUnsupported, "[Sequence] this model is a {}, which reads no source", model.info().architecture);
  const auto rows = static_cast<int64_t>(source.size());
  AlignedBuffer<float> encoded(source.size() * static_cast<size_t>(model.info().hidden_size));
  model.encode(source, {Output::kHidden, rows, stop}, encoded.data());
  const std::lock_guard lock(loaded.turn);
  impl_->source = std::make_shared<const model::Caches>(loaded.decoder.remember(default_pool(), loaded.scratch, encoded.data(), rows, stop));
  impl_->source_size = rows;
  impl_->caches = loaded.decoder.make_caches();
}
Sequence::Sequence(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Sequence::~Sequence() = default;
Sequence::Sequence(Sequence&&) noexcept = default;
Sequence& Sequence::operator=(Sequence&&) noexcept = default;

int64_t Sequence::source_size() const { return impl_->source_size; }
int64_t Sequence::size() const { return static_cast<int64_t>(impl_->tokens.size()); }
const std::vector<int32_t>& Sequence::tokens() const { return impl_->tokens; }

void Sequence::truncate(int64_t n) {
  require(n >= 0 && n <= size(), "[Sequence::truncate] to {} tokens; the sequence has {}", n, size());
  for (KvCache& cache : impl_->caches) cache.truncate(n);
  impl_->tokens.resize(static_cast<size_t>(n));
}

Sequence Sequence::fork() const {
  auto copy = std::make_unique<Impl>();
  copy->model = impl_->model;
  copy->tokens = impl_->tokens;
  copy->source = impl_->source;
  copy->source_size = impl_->source_size;
  for (const KvCache& cache : impl_->caches) copy->caches.push_back(cache.fork());
  return Sequence(std::move(copy));
}

}  // namespace regard
