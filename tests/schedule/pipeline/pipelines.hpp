// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "schedule/models.hpp"
#include "trireme/schedule/pipeline/build.hpp"

namespace trireme::schedule::testing {

inline constexpr PipelineKind all_kinds[] = {PipelineKind::gpipe, PipelineKind::one_f_one_b, PipelineKind::interleaved,
                                             PipelineKind::zb_h1, PipelineKind::zbv,         PipelineKind::dualpipev};

inline Pipeline pipeline(PipelineKind kind, int ranks, int microbatches, int chunks = 0) {
  return {
      .kind = kind, .ranks = ranks, .chunks = chunks > 0 ? chunks : default_chunks(kind), .microbatches = microbatches};
}

/// Pipelines of every kind that can be built with these sizes.
inline std::vector<Pipeline> pipelines(std::vector<int> ranks, std::vector<int> microbatches) {
  std::vector<Pipeline> all;
  for (const PipelineKind kind : all_kinds)
    for (const int p : ranks)
      for (const int m : microbatches)
        for (int chunks = default_chunks(kind);
             chunks <= (kind == PipelineKind::interleaved ? 3 : default_chunks(kind)); ++chunks)
          if (const Pipeline of = pipeline(kind, p, m, chunks); mistakes(of).empty()) all.push_back(of);
  return all;
}

/// The lists of all ranks for a small model with a layer for each chunk, and one more.
struct Lists {
  Pipeline pipeline;
  std::vector<model::PipelinePart> parts;
  std::vector<Schedule> lists;
};
inline Lists lists_of(const Pipeline& pipeline, const Policy& policy = {}, bool tied = false,
                      const model::TensorPart& part = {}) {
  const model::Model whole = llama(pipeline.all_chunks() + 1, tied, part);
  const auto chunks = model::cut_by_flops(whole, pipeline.all_chunks(), 64);
  Lists out{.pipeline = pipeline, .parts = pipeline_parts(whole, chunks, pipeline), .lists = {}};
  out.lists = build_pipeline(out.parts, pipeline, flop_costs(whole, chunks, 64), policy);
  return out;
}

}  // namespace trireme::schedule::testing
