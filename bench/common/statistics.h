// Order statistics of measured values. Pure; the values may come in any order, at least one.
#pragma once

#include <vector>

namespace kolo::bench {

// The middle value, or the mean of the two middle ones.
double median(std::vector<double> values);

// The measured value below which the given share (0 to 1) of the values lies.
double quantile(std::vector<double> values, double share);

}  // namespace kolo::bench
