// Config: the one table of options, and the only place that reads the environment.
//
// Every option has a key ("stall_warning_ms"), the environment variable KOLO_<KEY>, a default,
// bounds and one sentence of help. A value set by key wins over the environment, which wins over
// the default. Values are checked when set or loaded: the error names option, value and bounds.
// A Config is a plain value; one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kolo::internal {

struct OptionRow {
  enum class Type { kInteger, kText, kFlag, kChoice };
  std::string_view key;
  Type type = Type::kText;
  std::string_view default_value;
  std::int64_t min = 0;  // integers only
  std::int64_t max = 0;
  std::string_view choices;  // "auto|direct|ring"
  std::string_view help;
};

class Config {
 public:
  static std::span<const OptionRow> table();
  static Status check_key(std::string_view key);  // OK if the table has it

  // All KOLO_* variables of the table; with unknown KOLO_* names listed in `unknown` (a warning,
  // not an error). Rank and size come from KOLO_RANK and KOLO_SIZE, else from torchrun's
  // variables; half a family is an error, as is another launcher's that says size > 1.
  Status load_environment(std::vector<std::string>& unknown);
  Status set(std::string_view key, std::string_view value);
  // As if it had never been set; what was held of it is overwritten.
  void forget(std::string_view key);

  // Where CUDA is installed, by its own variables (CUDA_HOME, CUDA_PATH) or its habit.
  // An environment variable of another system that kolo heeds, as NCCL_HOSTID; empty: not set.
  [[nodiscard]] static std::string foreign(const char* name);
  [[nodiscard]] static std::string cuda_home();

  [[nodiscard]] bool is_set(std::string_view key) const;  // by set() or the environment
  // The value in force; the key must be in the table.
  [[nodiscard]] std::string text(std::string_view key) const;
  [[nodiscard]] std::int64_t integer(std::string_view key) const;
  [[nodiscard]] bool flag(std::string_view key) const;

 private:
  Status load_variable(std::string_view key, const std::string& name);
  Status load_launcher_family();
  Status load_pmi_family();
  [[nodiscard]] Status check_family() const;

  std::map<std::string, std::string, std::less<>> set_;
  std::map<std::string, std::string, std::less<>> environment_;
};

}  // namespace kolo::internal
