#include "launcher/line_merger.h"

namespace kolo::internal {

std::string make_label(Label label, int rank, int stream, bool colour) {
  if (label == Label::kNone) return "";
  std::string text = "[" + std::to_string(rank) + "]";
  if (label == Label::kStream) text += stream == 2 ? "<stderr>" : "<stdout>";
  if (colour) text = "\x1b[" + std::to_string(31 + rank % 6) + "m" + text + "\x1b[0m";
  return text + " ";
}

void LineMerger::emit(std::string_view end_of_line, std::string& out) {
  out += label_;
  out += partial_;
  out += end_of_line;
  out += '\n';
  partial_.clear();
}

void LineMerger::feed(std::string_view piece, std::string& out) {
  while (!piece.empty()) {
    const std::size_t room = kMaxLineBytes - partial_.size();
    const std::size_t newline = piece.substr(0, room + 1).find('\n');
    if (newline != std::string_view::npos) {
      emit(piece.substr(0, newline), out);
      piece = piece.substr(newline + 1);
    } else if (piece.size() > room) {
      emit(piece.substr(0, room), out);
      piece = piece.substr(room);
    } else {
      partial_ += piece;
      return;
    }
  }
}

void LineMerger::finish(std::string& out) {
  if (!partial_.empty()) emit("", out);
}

}  // namespace kolo::internal
