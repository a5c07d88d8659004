// Nothing moves under a pointer that is about to click: while it moves over a list, the list is held as it stands.
import { type PointerEvent, useEffect, useRef, useState } from "react";

/** A pointer that rests for so long is not about to click; then the list goes on. */
const RESTS_MS = 4_000;

export function useHold<T>() {
  const [held, setHeld] = useState<T>();
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  const release = () => {
    clearTimeout(timer.current);
    setHeld(undefined);
  };
  /** For the element over which the pointer holds what `standing` says. */
  const over = (standing: () => T) => {
    const moved = (event: PointerEvent) => {
      // A finger does not hover.
      if (event.pointerType !== "mouse") return;
      clearTimeout(timer.current);
      timer.current = setTimeout(() => setHeld(undefined), RESTS_MS);
      setHeld((before) => before ?? standing());
    };
    return { onPointerEnter: moved, onPointerMove: moved, onPointerLeave: release };
  };
  return { held, over };
}
