// Configurations and states of runs from untrusted bytes. The first byte says which: a refusal is an Error or a Failure, and what
// is taken is written again as something that reads back to the same.
#include <string>

#include "format/byte_source.h"
#include "fuzz/fuzz.h"
#include "regard/error.h"
#include "regard/train.h"
#include "train/state_file.h"

using namespace regard;

namespace {

void configuration(std::string_view text) {
  try {
    const TrainConfig config = parse_train_config(text, "c.json");
    const std::string again = train_config_json(config);
    fuzz::demand(train_config_json(parse_train_config(again, "again")) == again);
  } catch (const Error&) {
  }
}

void assignment(std::string_view text) {
  TrainConfig config;
  try {
    set_train_field(config, text);
  } catch (const Error&) {
    fuzz::demand(train_config_json(config) == train_config_json({}));
  }
}

void state(std::span<const uint8_t> bytes) {
  const MemorySource source(bytes);
  const auto head = train_loop::read_state_head(source, "state");
  if (!head) return;
  fuzz::demand(head->elements * head->checksums.size() * sizeof(float) <= bytes.size());
  std::vector<std::vector<float>> memory(head->checksums.size(), std::vector<float>(head->elements));
  train_loop::Spans spans(memory.begin(), memory.end());
  static_cast<void>(train_loop::read_state_spans(source, *head, spans, "state"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span bytes(data + 1, size - 1);
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0] % 3) {
    case 0: configuration(text); break;
    case 1: assignment(text); break;
    default: state(bytes); break;
  }
  return 0;
}

std::vector<std::string> regard::fuzz::seeds() {
  // A state without a number in it: magic, length of the head, checksum of the head, head.
  std::string head = R"({"step":1,"updates":1,"tokens":2,"evaluated_step":0,"validation_loss":null,"best_loss":0.5,"best_step":1,)"
                     R"("evaluations_since_best":0,"recent_losses":[1.5],"recent_norms":[],"config":"{}","data_hash":"0123456789abcdef",)"
                     R"("tokenizer_hash":"0000000000000000","layout_hash":"0000000000000001","elements":0,"checksums":["0000000000000000"]})";
  const uint64_t numbers[] = {head.size(), train_loop::hash_bytes(std::as_bytes(std::span(head)))};
  const std::string file = "RegardT1" + std::string(reinterpret_cast<const char*>(numbers), sizeof numbers) + head;
  return {std::string(1, '\0') + train_config_json({}), std::string(1, '\0') + R"({"run":{"steps":7},"data":{"files":["a","b"]}})",
          std::string("\1optimizer.learning_rate=1e-3"), std::string("\1data.files=a,b"), "\2" + file};
}
