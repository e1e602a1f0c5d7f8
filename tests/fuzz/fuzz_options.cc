// Any words, one a line, as kolorun's command line: ends with options within their bounds or one
// line of error; the program's own words are the last of the command line, untouched. A line by
// itself is also split as the command of --launcher-exec is; quoting undoes it.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "launcher/options.h"
#include "launcher/remote_command.h"

using namespace kolo::internal;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::string> words(1);
  for (std::size_t i = 0; i < size; ++i) {
    if (data[i] == '\n')
      words.emplace_back();
    else if (data[i] != '\0')
      words.back() += static_cast<char>(data[i]);
  }
  if (const auto split = split_words(words.front())) {
    std::string quoted;
    for (const std::string& word : *split) quoted += shell_quote(word) + " ";
    const auto again = split_words(quoted);
    if (!again || *again != *split) std::abort();
  }
  const auto options = parse_command_line(words);
  if (!options) {
    if (options.status().text().empty()) std::abort();
    return 0;
  }
  if (options->rank_count < 0 || options->rank_count > kMaxRanks) std::abort();
  const std::vector<std::string>& program = options->program;
  if (options->action == Action::kRun && program.empty()) std::abort();
  if (!std::equal(program.rbegin(), program.rend(), words.rbegin())) std::abort();
  return 0;
}
