#include "transport/pmi/pmi_wire.h"

#include <algorithm>
#include <charconv>
#include <map>

namespace kolo::internal {
namespace {

constexpr std::size_t kMaxFields = 64;
constexpr std::size_t kMaxBlocks = 1024;

Status no_line(std::string_view line) {
  constexpr std::size_t kShown = 80;
  std::string shown;
  for (const char c : line.substr(0, kShown)) shown += c >= ' ' && c <= '~' ? c : '?';
  return invalid_argument("the launcher's answer is no line of PMI-1: '" + shown + "'");
}

std::optional<int> parse_int(std::string_view text, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > most) {
    return std::nullopt;
  }
  return value;
}

struct Block {
  int first_node = 0;
  int nodes = 0;
  int ranks_per_node = 0;
};

bool skip(std::string_view& text, std::string_view what) {
  if (!text.starts_with(what)) return false;
  text.remove_prefix(what.size());
  return true;
}

bool take_number(std::string_view& text, char end, int least, int& value) {
  const std::size_t at = text.find(end);
  if (at == std::string_view::npos) return false;
  const auto number = parse_int(text.substr(0, at), kMaxPmiRanks);
  text.remove_prefix(at + 1);
  if (!number || *number < least) return false;
  value = *number;
  return true;
}

std::optional<std::vector<Block>> parse_blocks(std::string_view text) {
  std::vector<Block> blocks;
  if (!skip(text, "(vector")) return std::nullopt;
  while (skip(text, ",(")) {
    Block block;
    if (!take_number(text, ',', 0, block.first_node) || !take_number(text, ',', 1, block.nodes) ||
        !take_number(text, ')', 1, block.ranks_per_node) || blocks.size() == kMaxBlocks) {
      return std::nullopt;
    }
    blocks.push_back(block);
  }
  if (text != ")" || blocks.empty()) return std::nullopt;
  return blocks;
}

}  // namespace

bool is_pmi_word(std::string_view text) {
  return !text.empty() && text.size() < kMaxPmiLineBytes &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

Result<PmiLine> PmiLine::parse(std::string_view line) {
  if (line.size() > kMaxPmiLineBytes) return no_line(line);
  PmiLine result;
  std::string_view rest = line;
  while (true) {
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    if (rest.empty()) break;
    const std::string_view field = rest.substr(0, rest.find(' '));
    rest.remove_prefix(field.size());
    const std::size_t equals = field.find('=');
    if (equals == 0 || result.fields_.size() == kMaxFields || !is_pmi_word(field)) {
      return no_line(line);
    }
    if (equals == std::string_view::npos) {  // the words of a message go on
      if (result.fields_.empty()) return no_line(line);
      result.fields_.back().second.append(" ").append(field);
      continue;
    }
    result.fields_.emplace_back(field.substr(0, equals), field.substr(equals + 1));
  }
  if (result.fields_.empty() || result.fields_.front().first != "cmd") return no_line(line);
  return result;
}

std::optional<std::string_view> PmiLine::find(std::string_view key) const {
  for (const auto& [name, value] : fields_) {
    if (name == key) return value;
  }
  return std::nullopt;
}

bool PmiLine::is_success() const { return find("rc").value_or("0") == "0"; }

std::optional<int> PmiLine::number(std::string_view key, int most) const {
  const auto text = find(key);
  return text ? parse_int(*text, most) : std::nullopt;
}

Result<std::vector<int>> parse_process_mapping(std::string_view text, int size) {
  const auto blocks = parse_blocks(text);
  if (!blocks || size < 1 || size > kMaxPmiRanks) {
    return invalid_argument("the launcher's process mapping is none: '" +
                            std::string(text.substr(0, 80)) + "'");
  }
  std::vector<int> hosts;
  std::map<int, int> numbers;  // of nodes, by first appearance
  const auto total = static_cast<std::size_t>(size);
  while (hosts.size() < total) {
    for (const Block& block : *blocks) {
      for (int node = 0; node < block.nodes && hosts.size() < total; ++node) {
        const auto next = static_cast<int>(numbers.size());
        const int number = numbers.try_emplace(block.first_node + node, next).first->second;
        const auto count =
            std::min(static_cast<std::size_t>(block.ranks_per_node), total - hosts.size());
        hosts.insert(hosts.end(), count, number);
      }
    }
  }
  return hosts;
}

}  // namespace kolo::internal
