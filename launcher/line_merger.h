// LineMerger: turns the pieces that one stream of one rank writes into whole, labelled lines.
// Pure; one object per rank and stream.
#pragma once

#include <string>
#include <string_view>

#include "launcher/options.h"

namespace kolo::internal {

// "[3] ", "[3]<stderr> " or nothing; coloured by rank for a terminal.
std::string make_label(Label label, int rank, int stream, bool colour);

class LineMerger {
 public:
  // A longer line is cut into lines of this length, so that memory is bounded.
  static constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20;

  explicit LineMerger(std::string label) : label_(std::move(label)) {}

  // Appends to `out` the lines that `piece` completes, each with its label and newline.
  void feed(std::string_view piece, std::string& out);
  // The stream has ended: an unfinished last line gets its newline.
  void finish(std::string& out);

 private:
  void emit(std::string_view end_of_line, std::string& out);
  std::string label_;
  std::string partial_;
};

}  // namespace kolo::internal
