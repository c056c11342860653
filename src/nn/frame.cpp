// SPDX-License-Identifier: Apache-2.0
#include "trireme/nn/frame.hpp"

#include <algorithm>

namespace trireme::nn {
namespace {

constexpr auto waits = [](const model::TensorSpec& spec) { return spec.waits; };

auto saved_in(model::Keep keep) {
  return [keep](const model::TensorSpec& spec) { return model::saves(spec.policy, keep); };
}

}  // namespace

Losses& Losses::operator+=(const Losses& more) {
  head += more.head;
  balance += more.balance;
  router_z += more.router_z;
  const auto add = [](at::Tensor& sum, const at::Tensor& term) {
    if (term.defined() && sum.defined())
      sum.add_(term);
    else if (term.defined())
      sum = term;
  };
  add(head_on_device, more.head_on_device);
  add(routers_on_device, more.routers_on_device);
  return *this;
}

bool Kept::lists(model::TensorId id, bool gradient) const {
  return std::ranges::any_of(table_, [&](const auto& spec) { return spec.id == id && spec.gradient == gradient; });
}

at::Tensor& Kept::at(model::TensorId id, bool gradient) {
  invariant(lists(id, gradient), "a stage keeps a tensor that its table does not list");
  return tensors_.at(index(id, gradient));
}

template <class Chosen>
std::vector<at::Tensor> Kept::take_all(const Chosen& chosen) {
  std::vector<at::Tensor> tensors;
  for (const model::TensorSpec& spec : table_)
    if (chosen(spec)) tensors.push_back(std::exchange(tensors_.at(index(spec.id, spec.gradient)), at::Tensor()));
  return tensors;
}

template <class Chosen>
void Kept::put_all(std::vector<at::Tensor> tensors, const Chosen& chosen) {
  auto next = tensors.begin();
  for (const model::TensorSpec& spec : table_) {
    if (!chosen(spec)) continue;
    invariant(next != tensors.end(), "fewer tensors are kept than the table of their stage lists");
    tensors_.at(index(spec.id, spec.gradient)) = std::move(*next++);
  }
  invariant(next == tensors.end(), "more tensors are kept than the table of their stage lists");
}

std::vector<at::Tensor> Kept::take_saved(model::Keep keep) { return take_all(saved_in(keep)); }

void Kept::put_saved(std::vector<at::Tensor> tensors, model::Keep keep) { put_all(std::move(tensors), saved_in(keep)); }

void Kept::put_saved(std::vector<at::Tensor> tensors) {
  const auto products = std::ranges::count_if(table_, saved_in(model::Keep::products));
  const bool all = tensors.size() > static_cast<std::size_t>(products);
  put_saved(std::move(tensors), all ? model::Keep::all : model::Keep::products);
}

std::vector<at::Tensor> Kept::take_pending() { return take_all(waits); }

void Kept::put_pending(std::vector<at::Tensor> tensors) { put_all(std::move(tensors), waits); }

void Kept::put_any(std::vector<at::Tensor> tensors) {
  const bool pending = tensors.size() == static_cast<std::size_t>(std::ranges::count_if(table_, waits));
  return pending ? put_pending(std::move(tensors)) : put_saved(std::move(tensors));
}

void Kept::put_gradients(std::initializer_list<model::TensorId> ids, std::span<const at::Tensor> gradients) {
  invariant(gradients.size() <= ids.size(), "a gradient of a parameter has a name");
  for (std::size_t i = 0; i < gradients.size(); ++i) gradient(ids.begin()[i]) = gradients[i];
}

std::vector<at::Tensor> Kept::gradients(std::initializer_list<model::TensorId> ids) const {
  std::vector<at::Tensor> found;
  for (const model::TensorId id : ids)
    if (const at::Tensor& gradient = tensors_.at(index(id, true)); gradient.defined()) found.push_back(gradient);
  return found;
}

}  // namespace trireme::nn
