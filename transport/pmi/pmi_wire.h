// The lines of PMI-1, which MPI launchers (mpiexec.hydra, srun) speak with each rank over the
// socket PMI_FD: "cmd=get kvsname=K key=N\n" and one line back. Pure functions; any bytes are an
// answer or an error.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace kolo::internal {

inline constexpr std::size_t kMaxPmiLineBytes = 4096;
inline constexpr int kMaxPmiRanks = 1 << 20;

class PmiLine {
 public:
  // `line` without its end. INVALID_ARGUMENT quotes what is no such line.
  static Result<PmiLine> parse(std::string_view line);

  [[nodiscard]] std::string_view command() const { return *find("cmd"); }
  [[nodiscard]] std::optional<std::string_view> find(std::string_view key) const;
  // `rc` is absent or 0.
  [[nodiscard]] bool is_success() const;
  // The number behind `key`, if there is one from 0 to `most`.
  [[nodiscard]] std::optional<int> number(std::string_view key, int most) const;

 private:
  std::vector<std::pair<std::string, std::string>> fields_;  // the first is cmd
};

// Whether PMI-1 can carry it as a key or value: printable, no blanks.
[[nodiscard]] bool is_pmi_word(std::string_view text);

// "(vector,(0,2,4))": 4 ranks on each of 2 nodes from node 0; several such blocks one after the
// other, and from the first again until all ranks have their node. The answer is each rank's host,
// numbered in the order of their first ranks.
Result<std::vector<int>> parse_process_mapping(std::string_view text, int size);

}  // namespace kolo::internal
