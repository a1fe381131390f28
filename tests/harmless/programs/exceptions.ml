(* OCaml: exceptions that cut the stack without unwinding, threads, signals, a moving collector. *)
exception Found of int

let rec deep n = if n = 0 then raise (Found 1) else 1 + deep (n - 1)

let () =
  let caught = ref 0 in
  for _ = 1 to 20000 do
    try ignore (deep 100) with Found n -> caught := !caught + n
  done;
  Printf.printf "exceptions: %d\n" !caught;
  let table = Hashtbl.create 16 in
  for i = 1 to 1_000_000 do
    Hashtbl.replace table (i mod 1000) (List.init 5 (fun j -> i + j))
  done;
  Printf.printf "table: %d\n" (Hashtbl.length table);
  let sums = Array.make 4 0 in
  let body i = for j = 1 to 10_000_000 do sums.(i) <- sums.(i) + (j mod 7) done in
  let threads = List.init 4 (Thread.create body) in
  List.iter Thread.join threads;
  Array.iteri (Printf.printf "thread %d: %d\n") sums;
  let got = ref false in
  Sys.set_signal Sys.sigusr1 (Sys.Signal_handle (fun _ -> got := true));
  Unix.kill (Unix.getpid ()) Sys.sigusr1;
  while not !got do Unix.sleepf 0.001 done;
  print_endline "signal: received";
  (match Unix.system "exit 5" with
   | Unix.WEXITED status -> Printf.printf "child: %d\n" status
   | _ -> print_endline "child: signal");
  exit 8
