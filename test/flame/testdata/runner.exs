# The runner's side: what FLAME's terminator does at first.
%{ref: ref, pid: pid} = System.fetch_env!("FLAME_PARENT") |> Base.decode64!() |> :erlang.binary_to_term()
true = Node.connect(node(pid))
Process.monitor(pid)
send(pid, {ref, {:remote_up, self()}})

receive do
  :stop -> :ok
  {:DOWN, _, :process, _, _} -> :ok
end
