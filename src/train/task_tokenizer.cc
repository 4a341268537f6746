#include "train/task_tokenizer.h"

#include <algorithm>
#include <utility>

#include "format/tokenizer_json_writer.h"
#include "text/tokenizer_spec.h"
#include "text/utf8.h"

namespace regard::train_tasks {

std::optional<TaskTokenizer> make_task_tokenizer(const Task& task) {
  TokenizerSpec spec;
  spec.origin = "the tokenizer of a task";
  for (int32_t id = 0; id < task.vocab_size(); ++id) {
    std::string piece = task.token_text(id);
    const Utf8Char first = next_char(piece);
    if (!first.valid() || first.size != piece.size() || std::find(spec.pieces.begin(), spec.pieces.end(), piece) != spec.pieces.end()) return {};
    spec.pieces.push_back(std::move(piece));
  }
  spec.model = WordLevelSpec{"<unk>"};  // which is no token: a character that the task does not have is an error that names it
  spec.pre_tokenizer = {SplitStep{{TextPattern::Kind::kRegex, R"([\s\S])"}, SplitBehavior::kIsolated, false}};
  spec.decoder = {FuseDecode{}};
  if (const auto frame = task.frame())
    for (const int32_t id : {frame->padding, frame->begin, frame->end}) {
      AddedTokenSpec added;
      added.content = spec.pieces[static_cast<size_t>(id)];
      added.id = id;
      added.special = true;
      spec.added.push_back(std::move(added));
    }
  std::string json = write_tokenizer_json(spec).value_or_throw();
  return TaskTokenizer{build_tokenizer(std::move(spec)).value_or_throw(), std::move(json)};
}

}  // namespace regard::train_tasks
