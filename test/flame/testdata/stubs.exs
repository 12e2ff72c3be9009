# What of FLAME the backend uses, in the shape that its documentation gives, and JSON for an Elixir that has none.
defmodule FLAME.Backend do
  @callback init(keyword) :: {:ok, term} | {:error, term}
  @callback remote_spawn_monitor(term, term) :: {:ok, {pid, reference}} | {:error, term}
  @callback system_shutdown() :: no_return
  @callback remote_boot(term) :: {:ok, pid, term} | {:error, term}
  @callback handle_info(term, term) :: {:noreply, term}
  @optional_callbacks handle_info: 2
end

defmodule FLAME.Parent do
  def new(ref, pid, backend, node_base, host_env),
    do: %{ref: ref, pid: pid, backend: backend, flame_vsn: "0.5.3", backend_app: nil, backend_vsn: nil, node_base: node_base, host_env: host_env}

  def encode(parent), do: parent |> :erlang.term_to_binary() |> Base.encode64()
end

unless Code.ensure_loaded?(JSON) do
  defmodule JSON do
    def encode!(map) when is_map(map),
      do: "{" <> Enum.map_join(map, ",", fn {k, v} -> encode!(to_string(k)) <> ":" <> encode!(v) end) <> "}"

    def encode!(list) when is_list(list), do: "[" <> Enum.map_join(list, ",", &encode!/1) <> "]"
    def encode!(text) when is_binary(text), do: inspect(text, binaries: :as_strings, printable_limit: :infinity)
    def encode!(other), do: to_string(other)

    # An answer is an object: its texts are found by name, which is all that the backend asks for.
    def decode!(text) do
      for [_, key, value] <- Regex.scan(~r/"(\w+)":"((?:[^"\\]|\\.)*)"/, text), into: %{}, do: {key, value}
    end
  end
end
