#include "launcher/options.h"

#include <getopt.h>

#include <algorithm>
#include <charconv>

#include "launcher/flag_table.h"

namespace kolo::internal {
namespace {

std::vector<std::string> split_names(std::string_view names) {
  std::vector<std::string> result;
  while (!names.empty()) {
    const std::size_t bar = names.find('|');
    result.emplace_back(names.substr(0, bar));
    names = bar == std::string_view::npos ? "" : names.substr(bar + 1);
  }
  return result;
}

int getopt_argument(FlagArgument argument) {
  switch (argument) {
    case FlagArgument::kNone: return no_argument;
    case FlagArgument::kOptional: return optional_argument;
    case FlagArgument::kRequired:
    case FlagArgument::kTwo: return required_argument;
  }
  return no_argument;
}

// getopt's view of the table; `names` owns the strings that `rows` points to.
struct GetoptTable {
  std::vector<std::vector<std::string>> names;
  std::vector<option> rows;
};

GetoptTable make_getopt_table() {
  GetoptTable table;
  for (const FlagRow& flag : flag_table()) table.names.push_back(split_names(flag.names));
  int index = 0;
  for (const FlagRow& flag : flag_table()) {
    for (const std::string& name : table.names[static_cast<std::size_t>(index)]) {
      table.rows.push_back({name.c_str(), getopt_argument(flag.argument), nullptr, index});
    }
    ++index;
  }
  table.rows.push_back({nullptr, 0, nullptr, 0});
  return table;
}

// As its users type it: short names and mpiexec's own with one dash.
std::string dashed(const std::string& name) {
  const bool one = (name.size() <= 3 && name != "mpi") || name == "genv" || name == "wdir";
  return (one ? "-" : "--") + name;
}

constexpr std::string_view kSeeHelp = "; kolorun --help shows all options";

// getopt has refused `typed`: no such option, or several that begin so, or a value too many.
std::string explain_unknown(const GetoptTable& table, const std::string& typed) {
  const std::string option = typed.substr(0, typed.find('='));
  const std::size_t first = option.find_first_not_of('-');
  const std::string name = first == std::string::npos ? "" : option.substr(first);
  std::string similar;
  int count = 0;
  for (const auto& names : table.names) {
    for (const std::string& known : names) {
      if (known == name) return option + " takes no value" + std::string(kSeeHelp);
      if (name.empty() || !known.starts_with(name)) continue;
      similar += " " + dashed(known);
      ++count;
    }
  }
  if (count == 1) return "option" + similar + " takes no value" + std::string(kSeeHelp);
  if (count > 1) return "option '" + option + "' could be any of" + similar;
  return "unknown option '" + option + "'" + std::string(kSeeHelp);
}

// mpirun's "program : -np 2 other" would otherwise hand ':' and all after it to the program. Only
// before one of our own options is a ':' taken for that: a shell's may stand anywhere else.
Status check_single_program(const GetoptTable& table, const std::vector<std::string>& program) {
  for (std::size_t i = 1; i + 1 < program.size(); ++i) {
    if (program[i] != ":") continue;
    const std::string& next = program[i + 1];
    const std::size_t name = std::min<std::size_t>(next.find_first_not_of('-'), 3);
    if (name != 1 && name != 2) continue;
    const std::string option_name = next.substr(name, next.find('=') - name);
    const bool ours = std::any_of(table.names.begin(), table.names.end(), [&](const auto& names) {
      return std::find(names.begin(), names.end(), option_name) != names.end();
    });
    if (!ours) continue;
    return invalid_argument("': " + next +
                            "': several programs in one job are not supported; start one that "
                            "looks at its rank (if ':' is an argument of it, write -- before it)");
  }
  return Status::ok();
}

Status check_complete(const LaunchOptions& options) {
  if (options.action != Action::kRun) return Status::ok();
  if (options.program.empty()) {
    return invalid_argument("no program to run; try: kolorun -np 4 ./program");
  }
  if (!options.hosts.empty() && !options.hostfile.empty()) {
    return invalid_argument("-H and --hostfile both name hosts; give one of them");
  }
  return Status::ok();
}

}  // namespace

bool parse_number(std::string_view text, long long min, long long max, long long& value) {
  long long number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end || number < min || number > max) return false;
  value = number;
  return true;
}

Result<std::vector<std::string>> split_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;
  char quote = '\0';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && quote != '\'') {
      if (++i == text.size()) return invalid_argument("a backslash at its end quotes nothing");
      word += text[i];
      inside = true;
    } else if (quote != '\0') {
      if (c == quote)
        quote = '\0';
      else
        word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      inside = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (inside) words.push_back(std::move(word));
      word.clear();
      inside = false;
    } else {
      word += c;
      inside = true;
    }
  }
  if (quote != '\0') return invalid_argument(std::string("a quote ") + quote + " is not closed");
  if (inside) words.push_back(std::move(word));
  return words;
}

Result<LaunchOptions> parse_command_line(std::span<const std::string> arguments) {
  const GetoptTable table = make_getopt_table();
  std::vector<std::string> copy = {"kolorun"};
  copy.insert(copy.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : copy) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const int argc = static_cast<int>(copy.size());

  LaunchOptions options;
  optind = 0;  // glibc: start afresh
  opterr = 0;  // we say it ourselves
  while (true) {
    const int before = optind == 0 ? 1 : optind;
    int match = 0;
    const int found = getopt_long_only(argc, argv.data(), "+:", table.rows.data(), &match);
    if (found == -1) break;
    const std::string typed = copy[static_cast<std::size_t>(before)];
    if (found == ':') return invalid_argument(typed + " wants a value" + std::string(kSeeHelp));
    if (found == '?') return invalid_argument(explain_unknown(table, typed));
    const FlagRow& flag = flag_table()[static_cast<std::size_t>(found)];
    const std::string value = optarg == nullptr ? "" : optarg;
    std::string second;
    if (flag.argument == FlagArgument::kTwo) {
      if (optind >= argc) return invalid_argument(typed + " wants two words: a name and a value");
      second = argv[static_cast<std::size_t>(optind++)];
    }
    KOLO_RETURN_IF_ERROR(flag.apply(options, value, second));
    if (!flag.no_effect.empty()) {
      options.notes.push_back(dashed(table.rows[static_cast<std::size_t>(match)].name) +
                              " has no effect: " + std::string(flag.no_effect));
    }
  }
  const bool marked = copy[static_cast<std::size_t>(optind - 1)] == "--";
  for (int i = optind; i < argc; ++i)
    options.program.emplace_back(copy[static_cast<std::size_t>(i)]);
  KOLO_RETURN_IF_ERROR(check_complete(options));
  if (!marked) KOLO_RETURN_IF_ERROR(check_single_program(table, options.program));
  return options;
}

std::string help_text() {
  constexpr std::pair<FlagGroup, std::string_view> kTitles[] = {
      {FlagGroup::kRanks, "Ranks"},
      {FlagGroup::kHosts, "Hosts"},
      {FlagGroup::kEnvironment, "Environment"},
      {FlagGroup::kOutput, "Output"},
      {FlagGroup::kFailure, "When a rank fails"},
      {FlagGroup::kTuning, "Tuning"},
      {FlagGroup::kInformation, "Information"}};
  constexpr std::size_t kColumn = 34;
  std::string text =
      "kolorun starts a program as N ranks that work together, on one host or on many.\n\n"
      "  kolorun [options] program [arguments]\n\n"
      "Examples\n"
      "  kolorun -np 4 ./digits                   four ranks on this machine\n"
      "  kolorun -H alpha:8,beta:8 -x OMP_NUM_THREADS=2 ./train --epochs 10\n";
  for (const auto& [group, title] : kTitles) {
    text += "\n" + std::string(title) + "\n";
    for (const FlagRow& flag : flag_table()) {
      if (flag.group != group || flag.help.empty()) continue;
      std::string left = " ";
      for (const std::string& name : split_names(flag.names)) {
        const std::size_t width = left.size() + dashed(name).size() + flag.placeholder.size() + 3;
        if (left.size() == 1 || width < kColumn) left += " " + dashed(name);  // some fit in a line
      }
      if (flag.argument == FlagArgument::kOptional) {
        left += "[=" + std::string(flag.placeholder) + "]";
      } else if (!flag.placeholder.empty()) {
        left += " " + std::string(flag.placeholder);
      }
      if (left.size() + 1 >= kColumn)
        left += "\n" + std::string(kColumn, ' ');
      else
        left.resize(kColumn, ' ');
      text += left + std::string(flag.help) + "\n";
    }
  }
  text +=
      "\nAfter the first failure the others have 0.3 s to report it, then get SIGTERM.\n"
      "Long options work with one dash or two. Ranks get empty standard input. The exit\n"
      "code is that of the rank that failed first, 128 + N for a death by signal N;\n"
      "130 after Ctrl-C, 2 bad usage, 125 kolorun's own failure, 126 program not\n"
      "executable, 127 program not found.\n";
  return text;
}

}  // namespace kolo::internal
