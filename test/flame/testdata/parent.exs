# The parent's side: a Runner process that boots one runner. It prints what became of it, a line each.
[url, boot_timeout, token_path] = System.argv()
options = [url: url, boot_timeout: String.to_integer(boot_timeout), terminator_sup: nil, log: :info, env: %{"GREETING" => "hello"}]
options = if token_path == "", do: options, else: options ++ [token_path: token_path]
{:ok, state} = Flint.FlameBackend.init(options)
IO.puts("KEY #{state.key}")
if inspect(state) =~ to_string(Node.get_cookie()), do: IO.puts("LEAK")
began = System.monotonic_time(:millisecond)
result = Flint.FlameBackend.remote_boot(state)
took = System.monotonic_time(:millisecond) - began

case result do
  {:ok, terminator, state} ->
    {:ok, {_pid, monitor}} = Flint.FlameBackend.remote_spawn_monitor(state, {:erlang, :send, [self(), :called]})

    receive do
      :called -> IO.puts("CALLED")
    after
      5_000 -> IO.puts("NOT CALLED")
    end

    receive do
      {:DOWN, ^monitor, :process, _, reason} -> IO.puts("DOWN #{inspect(reason)}")
    end

    # A second one would have the same parent, and would send the same.
    receive do
      {_, {:remote_up, _}} -> IO.puts("SECOND")
    after
      2_000 -> :ok
    end

    IO.puts("UP #{node(terminator)} #{took}")
    send(terminator, :stop)

  {:error, reason} ->
    IO.puts("FAILED #{took} #{inspect(reason)}")
    Process.sleep(1_000) # to the best-effort DELETE
end
