// From the rounds' figures to a table and JSON lines. Pure but for the two printing functions.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/peers/settings.h"

namespace kolo::bench {

struct Row {
  std::string system;
  std::size_t bytes = 0;
  std::vector<double> rounds_us;      // each round's median (p50)
  std::vector<double> rounds_p99_us;  // latency only
};

// kolo's median over the row's; nothing for kolo itself, or without kolo.
std::optional<double> ratio_to_kolo(const std::vector<Row>& rows, const Row& row);

// What a reader must know before quoting a ratio against this row; empty: nothing.
std::string note_on(const Row& row, int ranks, unsigned cores);

void print_table(std::ostream& out, const Settings& settings, unsigned cores,
                 const std::vector<Row>& rows);
void print_json(std::ostream& out, const Settings& settings, unsigned cores,
                const std::vector<Row>& rows);

}  // namespace kolo::bench
