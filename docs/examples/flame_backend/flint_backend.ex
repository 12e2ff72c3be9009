defmodule Flint.FlameBackend do
  @moduledoc """
  A `FLAME.Backend` whose runners are pods that Flint makes of the shape of this one.

      config :flame, :backend, Flint.FlameBackend
      config :flame, Flint.FlameBackend, url: "http://flint.flint.svc.cluster.local"

  The application needs no Kubernetes permission, and no library beside FLAME; on Elixir before 1.18 also Jason.
  Its pod needs `POD_NAME` and `POD_NAMESPACE`, and to be a distributed node with a long name.

  Options, of the application's configuration or of the pool:

    * `:url` - where Flint is (required)
    * `:token_path` - a projected service account token for Flint's audience, read for each request; none by default
    * `:container` - the container of this pod that runners are made from; the first by default
    * `:inherit`, `:volumes`, `:template` - as POST /api/v1/runners has them; Flint's defaults by default
    * `:env` - variables of the runner; `:secret_env` - those whose values go into a Secret, with `RELEASE_COOKIE`
    * `:boot_timeout` - milliseconds until the runner must have connected, 30,000 by default and 5,000 at least
  """
  @behaviour FLAME.Backend
  require Logger

  @json if Code.ensure_loaded?(JSON), do: JSON, else: Jason
  @options [:url, :token_path, :container, :inherit, :volumes, :template, :terminator_sup, :log]
  # Flint gives a boot up a little before FLAME does, so that its reason arrives in time.
  @head_start 3_000

  @derive {Inspect, except: [:secret_env, :flame_parent]}
  defstruct [:options, :env, :secret_env, :boot_timeout, :parent, :ref, :flame_parent, :key, :terminator]

  @impl true
  def init(opts) do
    opts =
      Application.get_env(:flame, __MODULE__, [])
      |> Keyword.merge(opts)
      |> Keyword.validate!(@options ++ [env: %{}, secret_env: %{}, boot_timeout: 30_000])

    with {:ok, name} <- fetch_env("POD_NAME"),
         {:ok, namespace} <- fetch_env("POD_NAMESPACE"),
         :ok <- check(opts[:url], "option :url is missing"),
         :ok <- check(Node.alive?(), "this node is not distributed, so that no runner could connect to it"),
         {:ok, _} <- Application.ensure_all_started(:inets),
         {:ok, _} <- Application.ensure_all_started(:ssl) do
      ref = make_ref()
      flame_parent = FLAME.Parent.encode(FLAME.Parent.new(ref, self(), __MODULE__, name, "POD_IP"))

      {:ok,
       %__MODULE__{
         options: Map.new(opts),
         env: opts[:env],
         secret_env: Map.put(opts[:secret_env], "RELEASE_COOKIE", to_string(Node.get_cookie())),
         boot_timeout: max(opts[:boot_timeout], @head_start + 2_000),
         parent: %{namespace: namespace, name: name},
         ref: ref,
         flame_parent: flame_parent,
         key: "flame-" <> hash(flame_parent)
       }}
    end
  end

  @impl true
  def remote_boot(%__MODULE__{ref: ref} = state) do
    deadline = now() + state.boot_timeout
    me = self()
    # It speaks to Flint, so that this process can hear the runner meanwhile.
    {watcher, monitor} = spawn_monitor(fn -> send(me, {ref, {:runner_failed, create(state, deadline)}}) end)

    result =
      receive do
        {^ref, {:remote_up, terminator}} -> {:ok, terminator, %{state | terminator: terminator}}
        {^ref, {:runner_failed, reason}} -> {:error, reason}
        {:DOWN, ^monitor, :process, _, reason} when reason != :normal -> {:error, reason}
      after
        max(deadline - now(), 0) -> {:error, :boot_timeout}
      end

    Process.demonitor(monitor, [:flush])
    Process.exit(watcher, :kill)

    with {:error, reason} <- result do
      Logger.error("runner #{state.key} did not boot: #{inspect(reason)}")
      # Whatever is on its way still: nothing of this key starts any more.
      spawn(fn -> request(state, :delete, launch_path(state) <> "?kind=runner", nil, now() + 5_000) end)
      flush(ref)
      {:error, reason}
    end
  end

  @impl true
  def remote_spawn_monitor(%__MODULE__{terminator: terminator}, term) do
    case term do
      fun when is_function(fun, 0) -> {:ok, Node.spawn_monitor(node(terminator), fun)}
      {m, f, a} when is_atom(m) and is_atom(f) and is_list(a) -> {:ok, Node.spawn_monitor(node(terminator), m, f, a)}
      other -> raise ArgumentError, "expected a function without arguments or {m, f, a}, got: #{inspect(other)}"
    end
  end

  @impl true
  def system_shutdown, do: System.stop()

  @impl true
  def handle_info(_message, state), do: {:noreply, state}

  # create asks for the runner until there is an answer, always with the same key: one key, one pod. It gives why
  # the boot failed.
  defp create(state, deadline) do
    case request(state, :post, "/api/v1/runners", body(state), deadline) do
      {:ok, status, _} when status in [200, 201, 202] -> follow(state, deadline)
      {:ok, status, %{"error_code" => code, "message" => message}} when status != 503 -> {code, message}
      again -> if pause(500, deadline), do: create(state, deadline), else: {:no_answer, again}
    end
  end

  # follow watches a runner that runs and has not connected yet, until the one who waits for it has enough.
  defp follow(state, deadline) do
    case request(state, :get, launch_path(state), nil, deadline) do
      {:ok, 200, %{"outcome" => _, "reason" => reason} = launch} ->
        {reason, launch["message"]}

      {:ok, 404, _} ->
        {"RUNNER_GONE", "its pod is gone"}

      _ ->
        Process.sleep(1_000)
        follow(state, deadline)
    end
  end

  defp body(state) do
    state.options
    |> Map.take([:inherit, :volumes, :template])
    |> Map.merge(%{
      submission_id: state.key,
      parent: if(c = state.options[:container], do: Map.put(state.parent, :container, c), else: state.parent),
      flame_parent: state.flame_parent,
      env: state.env,
      secret_env: state.secret_env,
      wait: "running",
      boot_timeout_ms: state.boot_timeout - @head_start
    })
  end

  defp launch_path(%{parent: %{namespace: namespace}, key: key}) do
    parts = for part <- ["flint.dev/launch/v1", namespace, key], into: <<>>, do: <<byte_size(part)::64, part::binary>>
    "/api/v1/launches/#{namespace}/#{binary_part(hash(parts), 0, 32)}"
  end

  defp request(state, method, path, body, deadline) do
    url = String.to_charlist(state.options.url <> path)
    # A connection of its own: httpc would let a request wait behind another one that takes long.
    headers = [{~c"connection", ~c"close"} | authorization(state.options[:token_path])]
    request = if body, do: {url, headers, ~c"application/json", @json.encode!(body)}, else: {url, headers}
    http = [timeout: max(deadline - now(), 1), ssl: [verify: :verify_peer, cacerts: :public_key.cacerts_get(), depth: 3]]

    http = if String.starts_with?(state.options.url, "https:"), do: http, else: Keyword.delete(http, :ssl)

    case :httpc.request(method, request, http, body_format: :binary) do
      {:ok, {{_, status, _}, _, text}} -> {:ok, status, decode(text)}
      {:error, reason} -> {:error, reason}
    end
  end

  defp decode(text) do
    @json.decode!(text)
  rescue
    _ -> %{}
  end

  defp authorization(nil), do: []
  defp authorization(path), do: [{~c"authorization", String.to_charlist("Bearer " <> String.trim(File.read!(path)))}]

  defp pause(ms, deadline) do
    if now() + ms < deadline, do: Process.sleep(ms) == :ok, else: false
  end

  defp flush(ref) do
    receive do
      {^ref, _} -> flush(ref)
    after
      0 -> :ok
    end
  end

  defp fetch_env(name) do
    with :error <- System.fetch_env(name), do: {:error, "variable #{name} is missing: set it from the pod's own metadata"}
  end

  defp check(value, message), do: if(value, do: :ok, else: {:error, message})
  defp hash(bytes), do: Base.encode16(:crypto.hash(:sha256, bytes), case: :lower)
  defp now, do: System.monotonic_time(:millisecond)
end
